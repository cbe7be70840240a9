"""Virtual milliseconds of products on each of two cards, on both, and of a copy from one to the other."""
import torch
from simulator_control import counts

SIZE, PRODUCTS = 4096, 8


def took(work):
    work()
    for device in range(2):
        torch.cuda.synchronize(device)
    before = counts().virtual_ns
    work()
    for device in range(2):
        torch.cuda.synchronize(device)
    return (counts().virtual_ns - before) / 1e6


def main():
    factors = [torch.zeros(SIZE, SIZE, device=f"cuda:{device}") for device in range(2)]

    def multiply(*devices):
        for _ in range(PRODUCTS):
            for device in devices:
                torch.mm(factors[device], factors[device])

    print(f"first {took(lambda: multiply(0)):.3f}")
    print(f"second {took(lambda: multiply(1)):.3f}")
    print(f"both {took(lambda: multiply(0, 1)):.3f}")
    print(f"copy {took(lambda: factors[1].to('cuda:0')):.3f}")


main()
