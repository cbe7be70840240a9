#!/usr/bin/env python3
"""product.py WIDTH ROWS...: under `spillway run --mode replace --limit BYTES`, products in bf16 of so many rows with a
weight, and a sum, with the weight on the card and with the same one moved to the host. Prints microseconds, whether the
values are the same, and how often the formula says that the weight is read, as JSON."""
import json
import math
import sys

import torch
from spillway_memory import query

TIMES, TILE = 5, 128


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


def formula(rows, width):
    """driver/product_reads.h, of a right operand with `width` columns."""
    card = torch.cuda.get_device_properties(0)
    own, other = math.ceil(width / TILE), math.ceil(rows / TILE)
    if width * width * 2 <= card.L2_cache_size / 2:
        return 1
    high = min(own, card.multi_processor_count / min(other, math.sqrt(card.multi_processor_count)))
    return other / min(other, card.multi_processor_count / high)


def main():
    width, *rows = map(int, sys.argv[1:])
    torch.manual_seed(1)
    left = {count: torch.randn(count, width, dtype=torch.bfloat16, device="cuda") for count in rows}
    limit = query().limit - query().context
    # The weight is at the start of a large block, of which all but the last page moves.
    block = torch.zeros(limit * 3 // 5 // 2, dtype=torch.bfloat16, device="cuda")
    weight = block[-width * width - (4 << 20):-(4 << 20)].view(width, width)
    weight.normal_()
    operations = {f"{count} rows": lambda numbers=numbers: numbers @ weight for count, numbers in left.items()}
    operations["sum"] = lambda: weight.sum(dtype=torch.float32)
    here = {name: (operation().cpu(), best_us(operation)) for name, operation in operations.items()}
    before = query().spilled
    hot = torch.empty(limit * 3 // 5, dtype=torch.uint8, device="cuda")
    result = {"moved": query().spilled - before, "weight": weight.numel() * 2, "uses": {}}
    for name, operation in operations.items():
        value, us = here[name]
        result["uses"][name] = {"card_us": us, "host_us": best_us(operation),
                                "same": torch.equal(operation().cpu(), value),
                                "formula": formula(int(name.split()[0]), width) if name != "sum" else 1}
    hot.fill_(1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
