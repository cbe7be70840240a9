"""Fills most of a card of 4 GiB with blocks of 8 MiB, frees every other one, and asks for 2 GiB: more than that is
free, in pieces. PyTorch's own allocator raises OutOfMemoryError.
"""
import torch

MIB = 1 << 20
blocks = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda") for _ in range(380)]
del blocks[::2]
large = torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda")
print("served", large.numel() // MIB)
