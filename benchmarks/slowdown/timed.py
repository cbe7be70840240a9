"""Runs one of tests/programs and prints the virtual milliseconds of its steps: timed.py PROGRAM SHARE AFTER [WORDS...].

After AFTER steps the program may use SHARE of the card only, as if it had grown. The last line is JSON.
"""
import atexit
import ctypes
import json
import os
import runpy
import sys

import torch


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("driver_calls", "injected_failures", "violations", "live_pages_bytes", "peak_pages_bytes", "launches",
                 "copies", "copied_bytes", "virtual_ns", "driver_stall_ns")]


class Control(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32), ("others", ctypes.c_void_p * 7),
                ("counts", ctypes.CFUNCTYPE(None, ctypes.POINTER(Counts)))]


def virtual_ms():
    function = ctypes.CDLL("libcuda.so.1").spillway_simulator_control
    function.restype = ctypes.POINTER(Control)
    counts = Counts()
    function().contents.counts(ctypes.byref(counts))
    return counts.virtual_ns / 1e6


def main():
    program, share, after, *words = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(program))
    import common
    ends = []

    def step(self, number):
        torch.cuda.synchronize()
        ends.append(virtual_ms())
        if number + 1 == int(after):
            torch.cuda.set_per_process_memory_fraction(float(share))

    common.Progress.step = step
    common.Progress.finish = lambda self: None
    atexit.register(lambda: print(json.dumps({
        "steps_ms": [later - earlier for earlier, later in zip(ends, ends[1:])],
        "peak_bytes": torch.cuda.max_memory_reserved()})))
    sys.argv = [program, *words]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
