"""What the distributed scripts share: a process group from torchrun's environment, or one rank without it."""
import os

import torch
import torch.distributed as dist


class Ranks:
    def __init__(self, backend="nccl"):
        self.count, self.number = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(self.device)
        if "WORLD_SIZE" not in os.environ:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", WORLD_SIZE="1", RANK="0")
        dist.init_process_group(backend, device_id=None if ":" in backend else self.device)

    def print(self, text):
        print(f"rank {self.number}: {text}", flush=True)

    def mean(self, value):
        value = value.detach().clone()
        dist.all_reduce(value, op=dist.ReduceOp.AVG)
        return value.item()

    def finish(self):
        torch.cuda.synchronize()
        self.print(f"peak_allocated={torch.cuda.max_memory_allocated()}")
        self.print(f"peak_reserved={torch.cuda.max_memory_reserved()}")
