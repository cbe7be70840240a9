"""PyTorch keeps as much of the card as it is given, all of it in use; then cuBLAS, which was not needed before, asks
the driver for its handle. Nothing idle is left anywhere: natively it dies with CUBLAS_STATUS_NOT_INITIALIZED or
CUBLAS_STATUS_ALLOC_FAILED.
"""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"  # none: it would be PyTorch's
import torch  # noqa: E402

from full_card import fill  # noqa: E402

a, b, out = (torch.ones(512, 512, device="cuda") for _ in range(3))
kept = fill()
print(f"PyTorch has {sum(block.numel() for block in kept) >> 30} GiB in use", flush=True)
torch.mm(a, b, out=out)
print("multiplied")
