"""A program that registers its blocks, so that they may lie in a file while it does not use them: nvme_full.py CORE."""
import ctypes
import sys

import torch

spillway = ctypes.CDLL(sys.argv[1])
blocks = []
for _ in range(40):
    blocks.append(torch.empty(8 << 20, dtype=torch.uint8, device="cuda"))
    spillway.spillway_block_add(ctypes.c_void_p(blocks[-1].data_ptr()), ctypes.c_uint64(8 << 20))
