"""fragmented.py SCRIPT [ARGUMENT...]: runs a script on Spillway's allocator, with the device full of blocks of 2 MiB of
which every other one is free. What is larger than that must be stitched; at the end it prints how often it was.
"""
import ctypes
import os
import runpy
import sys

import spillway

spillway.install()
import torch

MIB = 1 << 20


class Counts(ctypes.Structure):
    """spillway_strategy_counts of spillway.h."""

    _fields_ = [("size", ctypes.c_uint32), ("guarantee", ctypes.c_uint32), ("name", ctypes.c_char * 40)] + [
        (name, ctypes.c_uint64) for name in ("tried", "useful", "bytes", "microseconds")]


def stitched():
    core = ctypes.CDLL(os.environ["SPILLWAY_LIBRARIES"] + "/libspillway.so")
    counts = (Counts * 16)(*[Counts(size=ctypes.sizeof(Counts)) for _ in range(16)])
    filled = ctypes.c_size_t()
    core.spillway_query_strategies(counts, ctypes.c_size_t(16), ctypes.byref(filled))
    return sum(it.useful for it in counts[:filled.value] if it.name == b"stitch")


def fill():
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(2 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        return blocks


kept = fill()[::2]
before = stitched()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
print("stitched", stitched() - before)
