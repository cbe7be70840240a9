#!/usr/bin/env python3
"""long_queue.py SECONDS: under `spillway run --mode replace --limit BYTES`, so many seconds of launches are queued, and
then comes a request that is served only by moving memory, for which the queue has to end. Prints JSON. For a card: a
simulated one needs no time for such kernels."""
import json
import sys
import time

import torch
from spillway_memory import query

LAUNCHES = 500  # less than a driver queues before a launch waits
TRIAL = 100_000_000  # clock cycles


def seconds_of(cycles):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def main():
    wanted = float(sys.argv[1])
    torch.ones(1, device="cuda")
    limit = query().limit - query().context
    count = limit * 3 // 5 // 4
    cold = torch.full((count,), 3, dtype=torch.int32, device="cuda")
    seconds_of(1)
    each = int(TRIAL * wanted / LAUNCHES / seconds_of(TRIAL))
    before, start = query(), time.monotonic()
    for _ in range(LAUNCHES):
        torch.cuda._sleep(each)
    queued = time.monotonic() - start
    try:
        hot = torch.full((count,), 4, dtype=torch.int32, device="cuda")
        said = "served"
    except torch.OutOfMemoryError as error:
        hot, said = None, str(error).splitlines()[0]
    waited = time.monotonic() - start - queued
    after = query()
    torch.cuda.synchronize()
    took = time.monotonic() - start
    right = bool((cold == 3).all()) and (hot is None or bool((hot == 4).all()))
    print(json.dumps({"said": said, "queued": queued, "waited": waited, "took": took, "right": right,
                      "moved": after.spilled - before.spilled}))


if __name__ == "__main__":
    main()
