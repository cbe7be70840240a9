"""Whether a snapshot adds up to torch.cuda.memory_stats, with every kind of memory: prints each step, and what does
not.

PyTorch counts segments, and what is free in them, only where they do not expand.
"""
import collections
import gc
import inspect

import torch

# Since PyTorch 2.10.
NO_SPLIT = {"no_split": True} if "no_split" in inspect.signature(torch.cuda.MemPool).parameters else {}

MIB = 1 << 20


def new(bytes_):
    return torch.empty(bytes_, dtype=torch.uint8, device="cuda")


def of_snapshot():
    """What the levels must be, by device."""
    levels = collections.defaultdict(collections.Counter)
    for segment in torch.cuda.memory_snapshot():
        for pool in ("all", segment["segment_type"] + "_pool"):
            add = lambda key, number: levels[segment["device"]].update({f"{key}.{pool}.current": number})
            for key, field in (("allocated_bytes", "allocated_size"), ("active_bytes", "active_size"),
                               ("reserved_bytes", "total_size"), ("requested_bytes", "requested_size")):
                add(key, segment[field])
            blocks = segment["blocks"]
            states = [block["state"] for block in blocks]
            add("allocation", states.count("active_allocated"))
            add("active", len(states) - states.count("inactive"))
            if segment["is_expandable"]:
                continue
            add("segment", 1)
            if len(states) > 1:
                add("inactive_split", states.count("inactive"))
                add("inactive_split_bytes", sum(block["size"] for block in blocks if block["state"] == "inactive"))
    return levels


def check(step):
    wrong = []
    for device, levels in of_snapshot().items():
        stats = torch.cuda.memory_stats(device)
        wrong += [(device, key, stats[key], level) for key, level in levels.items() if stats[key] != level]
    print(step, wrong)


def use_device():
    held = [new(bytes_) for bytes_ in (1, 512, 70_000, MIB, MIB + 1, 3 * MIB, 30 * MIB, 900_000, 5 * MIB, 20 * MIB)]
    check("allocated")
    del held[::2]
    check("half freed")
    held += [new(700_000), new(2 * MIB)]
    check("reused")
    pool, whole = torch.cuda.MemPool(), torch.cuda.MemPool(**NO_SPLIT)
    with torch.cuda.use_mem_pool(pool):
        held += [new(1000), new(40 * MIB)]
    with torch.cuda.use_mem_pool(whole):
        held += [new(1000), new(4 * MIB), new(4 * MIB)]
    check("pools")
    del held[-2:]
    check("pools half freed")
    del pool, whole
    gc.collect()
    check("pools gone")
    held.clear()
    check("freed")
    torch.cuda.empty_cache()
    check("empty")


def main():
    for device in range(torch.cuda.device_count()):
        with torch.cuda.device(device):
            use_device()


if __name__ == "__main__":
    main()
