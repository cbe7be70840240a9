"""A library's first use where PyTorch has cached all but 2 MiB of the card: library_beside_cache.py cublas|cufft|...

The library asks the driver for its own memory, and PyTorch's cache is in its way."""
import sys

import torch


def tensor(*sizes):
    return torch.ones(*sizes, device="cuda")


USES = {
    "cublas": lambda: tensor(64, 64) @ tensor(64, 64),
    "cufft": lambda: torch.fft.fft(tensor(64)),
    "cusolver": lambda: torch.linalg.cholesky(torch.eye(64, device="cuda")),
    "cudnn": lambda: torch.nn.functional.conv2d(tensor(1, 3, 32, 32), tensor(8, 3, 3, 3)),
}

tensor(1)
hoard = torch.empty(torch.cuda.mem_get_info()[0] - (2 << 20), dtype=torch.uint8, device="cuda")
del hoard
USES[sys.argv[1]]()
torch.cuda.synchronize()
print("used")
