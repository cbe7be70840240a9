"""with_history.py SNAPSHOT PROGRAM [WORD...]: runs a program under PyTorch's memory history, and writes the snapshot
when it ends."""
import runpy
import sys

import torch

snapshot, sys.argv = sys.argv[1], sys.argv[2:]
torch.cuda.memory._record_memory_history(stacks="python")
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    torch.cuda.memory._dump_snapshot(snapshot)
