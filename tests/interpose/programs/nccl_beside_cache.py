"""A communicator that is made late: NCCL asks the driver for its buffers while PyTorch keeps nearly all of the card as
idle cache. For torchrun. Natively it dies with NCCL's "unhandled cuda error".
"""
import os
import sys

import torch
import torch.distributed as dist

SPARE = 200 << 20


def hoard():
    """Leaves PyTorch's cache with all of the card but SPARE bytes, in blocks of which nothing is in use."""
    free, _ = torch.cuda.mem_get_info()
    blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range((free - SPARE) >> 30)]
    free, _ = torch.cuda.mem_get_info()
    if free > SPARE:
        blocks.append(torch.empty(free - SPARE, dtype=torch.uint8, device="cuda"))


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
numbers = torch.ones(1 << 20, device="cuda")
hoard()
dist.all_reduce(numbers)
torch.cuda.synchronize()
sys.stdout.write("reduced\n")  # in one piece: ranks share the output
sys.stdout.flush()
dist.destroy_process_group()
