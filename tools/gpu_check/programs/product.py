#!/usr/bin/env python3
"""product.py: under `spillway run --mode replace --limit BYTES`, a product in bf16 and a sum, with an operand on the
card and with the same one moved to the host. Prints microseconds and whether the values are the same, as JSON."""
import json

import torch
from spillway_memory import query

WIDTH, TIMES = 4096, 5


def best_us(operation):
    best = float("inf")
    for _ in range(TIMES):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        operation()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1e3)
    return best


def main():
    torch.manual_seed(1)
    rows = torch.randn(256, WIDTH, dtype=torch.bfloat16, device="cuda")
    limit = query().limit - query().context
    # The weight is at the start of a large block, of which all but the last page moves.
    block = torch.zeros(limit * 3 // 5 // 2, dtype=torch.bfloat16, device="cuda")
    weight = block[-WIDTH * WIDTH - (4 << 20):-(4 << 20)].view(WIDTH, WIDTH)
    weight.normal_()
    operations = {"product": lambda: rows @ weight, "sum": lambda: weight.sum(dtype=torch.float32)}
    here = {name: (operation().clone(), best_us(operation)) for name, operation in operations.items()}
    before = query().spilled
    hot = torch.empty(limit * 3 // 5, dtype=torch.uint8, device="cuda")
    moved = query().spilled - before
    result = {"moved": moved, "weight": weight.numel() * 2}
    for name, operation in operations.items():
        value, us = here[name]
        result[name] = {"card_us": us, "host_us": best_us(operation), "same": torch.equal(operation(), value)}
    hot.fill_(1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
