"""PyTorch's own virtual-memory allocator: a segment grows in place, so freed pieces serve a larger request."""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import torch

MIB = 1 << 20
pieces = [torch.empty(32 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
segments = torch.cuda.memory_snapshot()
assert len(segments) == 1 and segments[0]["is_expandable"], segments
reserved = torch.cuda.memory_reserved()
del pieces
whole = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_reserved() == reserved and len(torch.cuda.memory_snapshot()) == 1
del whole
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0
