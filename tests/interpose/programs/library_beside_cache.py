"""A library's first use where PyTorch has cached all but 2 MiB of the card: library_beside_cache.py cublas|cufft|...

The library asks the driver for its own memory, and PyTorch's cache is in its way: in several segments, because PyTorch
may take a workspace for the library from one of them before."""
import ctypes
import sys

import torch


def make_communicator():
    communicator = ctypes.c_void_p()
    if ctypes.CDLL("libnccl.so.2").ncclCommInitAll(ctypes.byref(communicator), 1, None) != 0:
        sys.exit("NCCL, called by the program itself, failed")


def tensor(*sizes):
    return torch.ones(*sizes, device="cuda")


USES = {
    "nccl": make_communicator,
    "cublas": lambda: tensor(64, 64) @ tensor(64, 64),
    "cufft": lambda: torch.fft.fft(tensor(64)),
    "cusolver": lambda: torch.linalg.cholesky(torch.eye(64, device="cuda")),
    "cudnn": lambda: torch.nn.functional.conv2d(tensor(1, 3, 32, 32), tensor(8, 3, 3, 3)),
}

tensor(1)
room = torch.cuda.mem_get_info()[0] - (2 << 20)
hoard = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (room - (64 << 20), 64 << 20)]
del hoard
USES[sys.argv[1]]()
torch.cuda.synchronize()
print("used")
