"""cache_in_the_way.py LIBRARY: loads Spillway's core by this name; cuBLAS then asks for memory that PyTorch caches."""
import ctypes
import sys

import torch

ctypes.CDLL(sys.argv[1])
torch.ones(1, device="cuda")
room = torch.cuda.mem_get_info()[0] - (2 << 20)
hoard = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (room - (64 << 20), 64 << 20)]
del hoard  # in two segments: PyTorch may take a workspace for cuBLAS from one of them
torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
torch.cuda.synchronize()
print("used")
