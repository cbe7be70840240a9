"""Its peak in PyTorch's allocator (194 MiB) is not at the peak of the card (16 MiB in it and 180 outside)."""
import ctypes

import torch

small = torch.empty(1, device="cuda")
runtime = ctypes.CDLL("libcudart.so.13")
memory = ctypes.c_void_p()
held = torch.empty(192 << 20, dtype=torch.uint8, device="cuda")
del held, small
torch.cuda.empty_cache()
torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
assert runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(180 << 20)) == 0
