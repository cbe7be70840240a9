"""A program whose need is known to the byte: it holds `count` tensors of 64 MiB, made on one line, then ends as told.

    holds.py COUNT [exit | raise | catch | kill | leave]
"""
import os
import signal
import sys

import torch

held = []
how = sys.argv[2] if len(sys.argv) > 2 else ""
try:
    for _ in range(int(sys.argv[1])):
        held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))  # the line that the report names
except torch.OutOfMemoryError:
    if how != "catch":
        raise
    del held[1:]
if how == "exit":
    sys.exit(7)
if how == "raise":
    raise ValueError("not for lack of memory")
if how == "leave":
    os._exit(0)
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
