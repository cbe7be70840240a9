"""cache_in_the_way.py LIBRARY: loads Spillway's core by this name; cuBLAS then asks for memory that PyTorch caches."""
import ctypes
import sys

import torch

ctypes.CDLL(sys.argv[1])
torch.ones(1, device="cuda")
hoard = torch.empty(torch.cuda.mem_get_info()[0] - (2 << 20), dtype=torch.uint8, device="cuda")
del hoard
torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
torch.cuda.synchronize()
print("used")
