#!/usr/bin/env python3
"""measure.py RESULT LIMIT SCRIPT [ARGUMENT...]: runs a script unchanged and writes what it took of the card, as JSON.

LIMIT: bytes that PyTorch may reserve, 0 for no limit. A run that ends by running out of memory is a result; one that
fails otherwise is an error.
"""
import ctypes
import gc
import json
import os
import pathlib
import runpy
import sys

import torch


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def free_bytes_by_nvml():
    """The card's free bytes without touching CUDA, or None where there is no NVML."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    handle, memory = ctypes.c_void_p(), Memory()
    for status in (nvml.nvmlInit_v2(),
                   nvml.nvmlDeviceGetHandleByIndex_v2(int(first) if first.isdigit() else 0, ctypes.byref(handle)),
                   nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))):
        if status != 0:
            return None
    return memory.free


def run(script, arguments):
    """Whether the script fits."""
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except torch.OutOfMemoryError:
        return False
    return True


def used_by_process(before):
    """Bytes of the card that this process had at its peak: PyTorch's, and all that CUDA and its libraries hold."""
    free, total = torch.cuda.mem_get_info()
    used = total - free if before is None else before - free_bytes_by_nvml()
    return used + torch.cuda.max_memory_reserved() - torch.cuda.memory_reserved()


def main():
    result, limit, script, *arguments = sys.argv[1:]
    before = free_bytes_by_nvml()
    total = torch.cuda.get_device_properties(0).total_memory
    if int(limit):
        torch.cuda.set_per_process_memory_fraction(int(limit) / total)
    fits = run(script, arguments)
    gc.collect()
    torch.cuda.synchronize()
    pathlib.Path(result).write_text(json.dumps({
        "fits": fits, "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
        "process": used_by_process(before)}))


if __name__ == "__main__":
    main()
