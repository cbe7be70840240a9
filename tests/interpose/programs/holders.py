"""Keeps more and more memory until a request fails: holders.py forward|backward. Or until it is killed, after so many
other requests that the trace has lost those: holders.py waiting."""
import os
import sys

import torch

WIDTH = 1024


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def grow(kept):
    kept.append(torch.empty(8 << 20, dtype=torch.uint8, device="cuda"))


def fill():
    kept = []
    for _ in range(torch.cuda.mem_get_info()[0] // (8 << 20) - 3):
        grow(kept)
    return kept


def wait_for_the_end():
    kept = []
    for _ in range(20):
        grow(kept)
    for _ in range(40_000):  # a thread's ring has 32,768 records
        torch.empty(1024, device="cuda")
    print(os.getpid(), flush=True)
    sys.stdin.read()


def main():
    if sys.argv[1] == "waiting":
        return wait_for_the_end()
    network = torch.nn.Sequential(*[Block() for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(network.parameters(), foreach=False)
    x = torch.randn(2048, WIDTH, device="cuda")

    def loss_of():
        return network(x).square().mean()

    loss_of().backward()
    optimizer.step()
    optimizer.zero_grad()
    if sys.argv[1] == "forward":
        kept = fill()
        while True:
            grow(kept)
    loss = loss_of()
    torch.cuda.empty_cache()
    kept = fill()
    loss.backward()


main()
