"""torch.cuda.MemPool: allocations of one part of a program kept apart, and given back with the pool.

Stands for: programs that register a pool with NCCL, that isolate a server's KV cache, or that use
`use_on_oom` and `no_split` pools.
"""
import argparse

import torch

MIB = 1 << 20


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=512, help="size of the pooled tensors")
    return parser.parse_args()


def tensor(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def kept_apart(mib):
    outside = tensor(mib)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = tensor(mib)
    segments = pool.snapshot()
    assert sum(segment["total_size"] for segment in segments) >= mib * MIB
    assert all(segment["segment_pool_id"] == pool.id for segment in segments)
    addresses = [segment["address"] for segment in segments]
    assert inside.data_ptr() in addresses and outside.data_ptr() not in addresses
    return pool, inside, outside


def reused(pool, address, mib):
    again = tensor(mib)
    assert again.data_ptr() != address, "the default pool took a private pool's block"
    with torch.cuda.use_mem_pool(pool):
        back = tensor(mib)
    assert back.data_ptr() == address, "the pool did not reuse its own block"


def main():
    mib = parse().mib
    torch.cuda.init()
    free = torch.cuda.mem_get_info()[0]
    pool, inside, outside = kept_apart(mib)
    address = inside.data_ptr()
    del inside
    reused(pool, address, mib)
    del outside
    reserved = torch.cuda.memory_reserved()
    del pool
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < reserved
    assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
    assert torch.cuda.mem_get_info()[0] == free
    print("peak", torch.cuda.max_memory_allocated(), "bytes")


if __name__ == "__main__":
    main()
