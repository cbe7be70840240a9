"""Fits a card of 300 MiB only where a request can have memory that others left over.

PyTorch's native allocator puts two blocks of 9 MiB into a segment of 20 MiB, so 30 of them leave 15 times 2 MiB when
28 MiB are asked for.
"""
import torch

MIB = 1 << 20
blocks = [torch.empty(9 * MIB, dtype=torch.uint8, device="cuda") for _ in range(30)]
blocks.append(torch.empty(28 * MIB, dtype=torch.uint8, device="cuda"))
