"""A collective that other ranks join late, and memory that is used again behind it.

Rank 0 frees what it receives into before the sender has come; the next tensors on the same stream get those bytes, and
what is computed there must come after what is received there. Each operator here makes its result from no tensor.
"""
import time

import torch
import torch.distributed as dist

from ranks import Ranks

COUNT = 1 << 20
MAKERS = {
    "arange": lambda: torch.arange(COUNT, device="cuda", dtype=torch.float32),
    "linspace": lambda: torch.linspace(0, 1, COUNT, device="cuda"),
    "randperm": lambda: torch.randperm(COUNT, device="cuda", dtype=torch.int32),
    "eye": lambda: torch.eye(1 << 10, device="cuda"),
}


def receive_and_make(make):
    """What `make` gives, in the bytes into which a message of the other rank is on its way."""
    received = torch.empty(COUNT, device="cuda")
    place = received.data_ptr()
    dist.broadcast(received, src=1)
    del received
    made = make()
    same_place = made.data_ptr() == place
    return same_place, made.sum(dtype=torch.float64).item(), made[-1:].flatten()[-1].item()


def main():
    ranks = Ranks()
    sent = torch.full((COUNT,), -1.0, device="cuda")
    dist.broadcast(sent, src=1)  # makes the communicator
    for name, make in MAKERS.items():
        dist.barrier(device_ids=[ranks.device.index])
        torch.cuda.synchronize()
        torch.manual_seed(1)
        if ranks.number == 1:
            time.sleep(0.2)
            dist.broadcast(sent, src=1)
            continue
        torch.cuda.empty_cache()
        same_place, total, last = receive_and_make(make)
        torch.manual_seed(1)
        expected = make()
        right = (total, last) == (expected.sum(dtype=torch.float64).item(), expected[-1:].flatten()[-1].item())
        ranks.print(f"{name}: same_place={int(same_place)} right={int(right)}")
    dist.barrier(device_ids=[ranks.device.index])
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
