"""Ranks other than 0 never read a value, and the program ends with destroy_process_group(): most short DDP scripts.

--api fully_shard shards the parameters as DTensors, --api ddp reduces gradients.
"""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import common
from ranks import Ranks


def main():
    options = common.options(__doc__, width=512, api="ddp")
    ranks = Ranks()
    model = torch.nn.Linear(options.width, options.width, device="cuda")
    if options.api == "ddp":
        model = DistributedDataParallel(model, device_ids=[ranks.device.index])
    else:
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(options.steps):
        loss = model(torch.randn(8, options.width, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if ranks.number == 0:
            ranks.print(f"step {step}: loss={loss.item():.7f}")
    dist.destroy_process_group()
    ranks.print("destroyed the group")


if __name__ == "__main__":
    main()
