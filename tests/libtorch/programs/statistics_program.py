"""Every key of torch.cuda.memory_stats along a scripted program: one line of JSON per step. The sizes are those at
which the native allocator gives a request exactly its rounded size."""
import gc
import json

import torch

MIB = 1 << 20


def new(bytes_):
    return torch.empty(bytes_, dtype=torch.uint8, device="cuda")


def say(step):
    print(json.dumps([step, torch.cuda.memory_stats()]))


def small_and_large():
    held = [new(n) for n in (1, 511, 512, 513, 100_000, MIB, 4 * MIB, 20 * MIB, 40 * MIB)]
    say("allocated")
    del held[::2]
    say("half freed")
    torch.cuda.reset_peak_memory_stats()
    held += [new(3 * MIB), new(700)]
    say("peaks reset")
    torch.cuda.reset_accumulated_memory_stats()
    held.append(new(5 * MIB))
    del held[0]
    say("totals reset")
    held.clear()
    say("freed")


def other_streams():
    side = torch.cuda.Stream()
    block = new(8 * MIB)
    with torch.cuda.stream(side):
        for _ in range(200):
            block.add_(1)
    block.record_stream(side)
    del block
    say("waits")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    say("waited")


def failures():
    held = new(1024 * MIB)
    for bytes_ in (1 << 40, 4096 * MIB):
        try:
            new(bytes_)
        except torch.OutOfMemoryError:
            say("failed")
    del held
    torch.cuda.reset_accumulated_memory_stats()
    say("failures reset")


def pools():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = new(4 * MIB)
    outside = new(4 * MIB)
    say("pooled")
    del inside, outside
    say("pool freed")
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    say("pool gone")


def main():
    torch.cuda.init()
    say("start")
    small_and_large()
    other_streams()
    failures()
    pools()
    matrix = torch.ones(300, 300, device="cuda")
    product = (matrix * matrix).relu().sum(0)
    say("operators")
    del matrix, product
    torch.cuda.empty_cache()
    say("end")


if __name__ == "__main__":
    main()
