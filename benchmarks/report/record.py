#!/usr/bin/env python3
"""Runs a program with PyTorch's history of memory on: record.py OUT PROGRAM [ARGUMENT...].

Writes the snapshot to OUT when memory runs out, or at the program's end.
"""
import pathlib
import runpy
import sys

import torch


def main(out, program):
    torch.cuda.memory._record_memory_history(stacks="python")
    sys.argv[1:] = sys.argv[3:]
    sys.path.insert(0, str(pathlib.Path(program).parent))
    try:
        runpy.run_path(program, run_name="__main__")
    except torch.OutOfMemoryError as error:
        print(error, file=sys.stderr)
    torch.cuda.memory._dump_snapshot(out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
