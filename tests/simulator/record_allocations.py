#!/usr/bin/env python3
"""record_allocations.py SCRIPT [ARGUMENT...]: runs a script with PyTorch's own record of allocations switched on, and
prints at its end how many entries the record has and two digests of what each did: action, size, address, stream.

Addresses count from the lowest one: the system may choose anew for each process where the card's memory begins. In
`allocator_stream` the frees between two allocations are sorted: PyTorch's autocast frees its copies of the weights in
the order of a hash of host addresses. `allocator_stream_as_it_was` keeps their order.
"""
import hashlib
import os
import runpy
import sys

import torch

FREES = ("free_requested", "free_completed")


def events(traces):
    base = min((entry["addr"] for trace in traces for entry in trace if "addr" in entry), default=0)
    for device, trace in enumerate(traces):
        for entry in trace:
            yield device, entry["action"], entry["size"], entry.get("addr", base) - base, entry["stream"]


def with_sorted_frees(stream):
    frees = []
    for event in stream:
        if event[1] in FREES:
            frees.append(event)
            continue
        yield from sorted(frees)
        frees.clear()
        yield event
    yield from sorted(frees)


def digest(stream):
    state = hashlib.sha256()
    for event in stream:
        state.update(repr(event).encode())
    return state.hexdigest()[:16]


def main():
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=sys.maxsize)
    runpy.run_path(sys.argv[0], run_name="__main__")
    stream = list(events(torch.cuda.memory._snapshot()["device_traces"]))
    print(f"allocator_events={len(stream)}")
    print(f"allocator_stream={digest(with_sorted_frees(stream))}")
    print(f"allocator_stream_as_it_was={digest(stream)}")


if __name__ == "__main__":
    main()
