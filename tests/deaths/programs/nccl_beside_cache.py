"""A communicator that is made late, while PyTorch's cache has nearly all of the card."""
import os

import torch
import torch.distributed as dist

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
torch.cuda.set_device(0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
gradients = torch.ones(1 << 20, device="cuda")
free = torch.cuda.mem_get_info()[0] - (8 << 20)
activations = [torch.empty(free // 4, dtype=torch.uint8, device="cuda") for _ in range(4)]
del activations
dist.all_reduce(gradients)
torch.cuda.synchronize()
print("reduced")
