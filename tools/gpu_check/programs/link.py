#!/usr/bin/env python3
"""link.py: bytes a second of copies between page-locked memory and the card, in both directions at once, as JSON."""
import json
import time

import torch

BYTES, TIMES = 256 << 20, 8
host = [torch.empty(BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
card = [torch.empty(BYTES, dtype=torch.uint8, device="cuda") for _ in range(2)]
streams = [torch.cuda.Stream() for _ in range(2)]


def run():
    """Seconds of each direction; the one that is done first ends the measurement of neither."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in streams]
    for stream, (begin, _) in zip(streams, events):
        begin.record(stream)
    for _ in range(TIMES):
        with torch.cuda.stream(streams[0]):
            card[0].copy_(host[0], non_blocking=True)
        with torch.cuda.stream(streams[1]):
            host[1].copy_(card[1], non_blocking=True)
    for stream, (_, end) in zip(streams, events):
        end.record(stream)
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in events]


run()
begin = time.perf_counter()
to_card, to_host = run()
print(json.dumps({"to_card": BYTES * TIMES / to_card, "to_host": BYTES * TIMES / to_host,
                  "seconds": time.perf_counter() - begin}))
