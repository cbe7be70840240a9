"""Steps of matrix products, whose operators tell what they use: with room, then with the weights moved to the host.

A weight's tiles are read over the link once for each tile of rows that the card's cache does not serve. Needs a card
that computes nothing (`--values zeros`). Prints the virtual milliseconds of a step, before and after the move.
"""
import torch

import simulator_control

MIB, WIDTH, ROWS = 1 << 20, 4096, 8192


def step(rows, weights):
    """The parts differ in length, so that none is taken for a step."""
    for number, weight in enumerate(weights, 1):
        result = rows @ weight
        del result
        for _ in range(120 * number):
            torch.empty(1, device="cuda")


def steps(rows, weights, count=14):
    """Milliseconds of the last."""
    for _ in range(count):
        before = simulator_control.counts().virtual_ns
        step(rows, weights)
        torch.cuda.synchronize()
        after = simulator_control.counts().virtual_ns
    return (after - before) / 1e6


def main():
    weights = [torch.empty(WIDTH, WIDTH, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
    rows = torch.empty(ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")
    print(f"before {steps(rows, weights):.2f}")
    more = torch.empty(80 * MIB, dtype=torch.uint8, device="cuda")
    print(f"moved {steps(rows, weights):.2f}")
    del more


if __name__ == "__main__":
    main()
