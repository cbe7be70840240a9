"""A program that runs out of memory outside PyTorch's allocator: it fills the card, then starts its first kernel.

    refused.py [catch | exit | hook | late]
"""
import sys

import torch

how = sys.argv[1] if len(sys.argv) > 1 else ""
x = torch.empty(64, device="cuda")
if how == "hook":
    sys.excepthook = lambda kind, error, trace: print("the program's own hook:", kind.__name__)
held = torch.empty(torch.cuda.mem_get_info()[0], dtype=torch.uint8, device="cuda")
if how in ("late", "hook"):
    try:
        torch.empty(64 << 20, device="cuda")
    except torch.OutOfMemoryError:
        pass
    raise KeyError("has nothing to do with memory")
try:
    torch.nn.functional.gelu(x)
except RuntimeError:
    if how == "exit":
        sys.exit(3)
    if how != "catch":
        raise
