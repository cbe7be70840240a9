#!/usr/bin/env python3
"""two_ranks.py FOLDER: for torchrun with two ranks under `spillway run --mode replace --limit BYTES`, each on a card of
its own. NCCL uses a tensor before its memory is moved to the host and after that, in each way in which a collective
takes memory. Each rank writes what was wrong, or "right", to FOLDER/rank0.json or rank1.json."""
import datetime
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from spillway_memory import query

PART, BEFORE_END = 1 << 20, 1 << 22  # numbers: what is used, and its end's distance from the tensor's
SECONDS = 60  # that one rank waits for the other


def numbers(rank):
    return torch.arange(PART, dtype=torch.int32, device="cuda") % 1000 + rank


def said(found, expected):
    torch.cuda.synchronize()
    wrong = (found.cpu() != expected.cpu()).sum().item()
    return "right" if wrong == 0 else f"{wrong} of {found.numel()} numbers are wrong"


def collectives(part, rank):
    """Each on the same memory, which holds the rank's numbers before."""
    own, both = numbers(rank), numbers(0) + numbers(1)
    half = PART // 2
    ways = {}

    def use(name, call, result, expected):
        part.copy_(own)
        call()
        ways[name] = said(result, expected)
    use("all-reduce", lambda: dist.all_reduce(part), part, both)
    use("broadcast", lambda: dist.broadcast(part, 1), part, numbers(1))
    gathered = torch.empty(2 * PART, dtype=torch.int32, device="cuda")
    use("all-gather from it", lambda: dist.all_gather_into_tensor(gathered, part), gathered,
        torch.cat([numbers(0), numbers(1)]))
    use("all-gather into it", lambda: dist.all_gather_into_tensor(part, own[:half]), part,
        torch.cat([numbers(0)[:half], numbers(1)[:half]]))
    scattered = torch.empty(half, dtype=torch.int32, device="cuda")
    use("reduce-scatter", lambda: dist.reduce_scatter_tensor(scattered, part), scattered,
        both[rank * half:(rank + 1) * half])
    use("send and receive", lambda: dist.send(part, 1) if rank == 0 else dist.recv(part, 0), part, numbers(0))
    return ways


def main():
    rank, folder = int(os.environ["LOCAL_RANK"]), pathlib.Path(sys.argv[1])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=SECONDS))
    collectives(numbers(rank), rank)  # NCCL takes what it needs
    memory = query(rank)
    count = (memory.free + memory.cached) * 3 // 5 // 4
    cold = torch.arange(count, dtype=torch.int32, device="cuda")
    part = cold[-BEFORE_END - PART:-BEFORE_END]
    result = {"before": collectives(part, rank)}
    hot = torch.empty(count, dtype=torch.int32, device="cuda").fill_(7)
    result["moved"] = query(rank).spilled
    result["after"] = collectives(part, rank)
    whole = torch.arange(count - BEFORE_END - PART, dtype=torch.int32)
    result["what others did not use"] = said(cold[:len(whole)], whole)
    result["beside it"] = "right" if bool((hot == 7).all()) else "wrong values"
    (folder / f"rank{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
