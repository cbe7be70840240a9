#!/usr/bin/env python3
"""spillway_memory.py RESULT SCRIPT [ARGUMENT...]: runs a script unchanged, under Spillway, and writes as JSON what
Spillway says of device 0 at its end."""
import ctypes
import json
import os
import pathlib
import runpy
import sys

import spillway


class Memory(ctypes.Structure):
    """spillway_memory"""
    _fields_ = [("size", ctypes.c_uint32), ("device", ctypes.c_int32), *((name, ctypes.c_uint64) for name in (
        "limit live rounding stranded cached pending pools context others free reserved peak_live peak_reserved "
        "failures rescued unwound gave_up rescued_bytes rescue_us driver_calls peak_allocated device_bytes "
        "spilled").split())]


def query(device=0):
    memory = Memory(ctypes.sizeof(Memory))
    core = spillway.core()
    if core.spillway_query(device, ctypes.byref(memory)) != 0:
        raise SystemExit(core.spillway_last_error().decode())
    return memory


def main():
    result, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    memory = query()
    pathlib.Path(result).write_text(json.dumps({name: getattr(memory, name) for name, _ in Memory._fields_}))


if __name__ == "__main__":
    main()
