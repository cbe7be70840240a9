"""Python objects between ranks by torch.distributed over NCCL: their sizes go through device memory."""
import torch
import torch.distributed as dist

from ranks import Ranks


def main():
    ranks = Ranks()
    torch.nn.Linear(512, 512, device="cuda")(torch.randn(8, 512, device="cuda")).sum().backward()
    mine = {"rank": ranks.number, "name": "x" * (ranks.number + 1)}
    every = [None] * ranks.count
    dist.all_gather_object(every, mine)
    ranks.print(f"all_gather {every}")
    sent = [mine, "text"] if ranks.number == 0 else [None, None]
    dist.broadcast_object_list(sent, 0)
    ranks.print(f"broadcast {sent}")
    gathered = [None] * ranks.count if ranks.number == 0 else None
    dist.gather_object(mine, gathered, 0)
    ranks.print(f"gather {gathered}")
    received = [None]
    dist.scatter_object_list(received, [[i] * (i + 1) for i in range(ranks.count)] if ranks.number == 0 else None, 0)
    ranks.print(f"scatter {received}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
