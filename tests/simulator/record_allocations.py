#!/usr/bin/env python3
"""record_allocations.py SCRIPT [ARGUMENT...]: runs a script with PyTorch's own record of allocations switched on, and
prints at its end how many entries the record has, two digests of what each did (action, size, address, stream), and the
host memory of its largest process.

An address is told as the segment's number, in the order in which segments were made, and the place in it: where the
driver puts a segment is not the program's doing. In `allocator_stream` the frees between two allocations are sorted:
PyTorch's autocast frees its copies of the weights in the order of a hash of host addresses.
`allocator_stream_as_it_was` keeps their order. With PyTorch 2.12 addresses are left out: of free blocks of one size its
allocator takes one or the other, as its own addresses on the host have it (2.13 added an address to the comparison).
"""
import bisect
import gc
import hashlib
import os
import resource
import runpy
import sys

import torch

FREES = ("free_requested", "free_completed")
PLACES_ARE_THE_SAME = not torch.__version__.startswith("2.12.")


class Segments:
    """The segments that there are, by address."""

    def __init__(self):
        self.starts, self.numbers, self.made = [], {}, 0

    def add(self, address):
        bisect.insort(self.starts, address)
        self.numbers[address] = self.made
        self.made += 1

    def remove(self, address):
        self.starts.remove(address)

    def place(self, address):
        index = bisect.bisect_right(self.starts, address) - 1
        if index < 0:
            return -1, 0
        return self.numbers[self.starts[index]], address - self.starts[index]


def events(traces):
    for device, trace in enumerate(traces):
        segments = Segments()
        for entry in trace:
            action, address = entry["action"], entry.get("addr", 0)
            if action == "segment_alloc":
                segments.add(address)
            place = segments.place(address) if PLACES_ARE_THE_SAME else ()
            yield device, action, entry["size"], *place, entry["stream"]
            if action == "segment_free":
                segments.remove(address)


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
    gc.collect()  # a compiled model is in a cycle; whether it has been collected by now depends on the machine
    stream = list(events(torch.cuda.memory._snapshot()["device_traces"]))
    print(f"allocator_events={len(stream)}")
    print(f"allocator_stream={digest(with_sorted_frees(stream))}")
    print(f"allocator_stream_as_it_was={digest(stream)}")
    host = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"host_peak_kib={host}")


if __name__ == "__main__":
    main()
