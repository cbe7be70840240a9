"""A training step that fills the card with live tensors, and whose backward pass then needs a cuBLAS handle for the
first time: PyTorch's backward thread makes one of its own, and cuBLAS asks the driver for its memory. `install`: by
spillway.install(), without the preloaded library.

It ends without Python's own end: on a busy machine the backward thread may still release its last tensors then, and
Python 3.11 ends a thread that asks for the interpreter's lock so late in a way that C++ answers with abort().
"""
import os
import sys

import torch
from full_card import MIB, fill

if "install" in sys.argv:
    import spillway

    spillway.install()
weight = torch.zeros(512, 512, device="cuda", requires_grad=True)
output = torch.zeros(512, 512, device="cuda") @ weight  # the main thread's handle
loss = output.sum()
activation = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
kept = fill()
del activation  # the backward pass has this for its gradients and for the workspace that PyTorch gives cuBLAS
print(f"in use {sum(block.numel() for block in kept) >> 30} GiB", flush=True)
loss.backward()
print("stepped", tuple(weight.grad.shape), flush=True)
os._exit(0)
