"""PyTorch over the driver's stream-ordered allocator."""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
import torch

tensor = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_allocated() == 64 << 20
del tensor
torch.cuda.synchronize()
torch.cuda.empty_cache()
assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 0
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    assert "out of memory" in str(error) or "Allocation on device" in str(error)  # the second before PyTorch 2.9
else:
    raise SystemExit("1 TiB fitted on the card")
