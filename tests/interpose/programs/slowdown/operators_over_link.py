"""operators_over_link.py products|in-place|views: steps of operators, which tell what they use: with room, then with a
part of their operands moved to the host.

A weight's tiles are read over the link once for each tile of rows that the card's cache does not serve. An optimizer's
operators change its states in place, one after the other without an allocation between them. What uses a view of a
large tensor, as of one layer's part of a cache, reads that part. Needs a card that computes nothing (`--values zeros`).
Prints the virtual milliseconds of a step, before and after the move.
"""
import sys

import torch

from timed_steps import last_ms

MIB, WIDTH, ROWS = 1 << 20, 4096, 8192


class Products:
    def __init__(self):
        self.weights = [torch.empty(WIDTH, WIDTH, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        self.rows = torch.empty(ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")

    def parts(self):
        for weight in self.weights:
            yield lambda weight=weight: self.rows @ weight


class InPlace:
    def __init__(self):
        self.states = [torch.empty(56 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]

    def parts(self):
        for state in self.states:
            yield lambda state=state: state.mul_(2).add_(1).bitwise_and_(3)


class Views:
    def __init__(self):
        self.cache = torch.empty(8, 28 * MIB, dtype=torch.uint8, device="cuda")

    def parts(self):
        for group in (0, 1, 2):
            yield lambda group=group: [self.cache[i].add_(1) for i in range(group * 3, min(group * 3 + 3, 8))]


def step(operators):
    """The parts differ in length, so that none is taken for a step."""
    for number, part in enumerate(operators.parts(), 1):
        part()
        for _ in range(120 * number):
            torch.empty(1, device="cuda")


def main():
    operators = {"products": Products, "in-place": InPlace, "views": Views}[sys.argv[1]]()
    print(f"before {last_ms(lambda: step(operators)):.2f}")
    more = torch.empty(80 * MIB, dtype=torch.uint8, device="cuda")
    print(f"moved {last_ms(lambda: step(operators)):.2f}")
    del more


if __name__ == "__main__":
    main()
