"""Prints what PyTorch's memory statistics say along a small program, one line per step. Sizes at which the native
allocator gives a request exactly its rounded size, so that every allocator must print the same.
"""
import torch

MIB = 1 << 20
KEYS = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "allocated_bytes.all.allocated",
        "allocated_bytes.all.freed", "allocated_bytes.small_pool.current", "allocated_bytes.large_pool.current",
        "requested_bytes.all.current", "requested_bytes.all.peak", "allocation.all.current", "allocation.all.allocated",
        "allocation.small_pool.peak", "active.all.current", "active_bytes.all.current", "active_bytes.all.peak",
        "num_ooms")


def say(step):
    stats = torch.cuda.memory_stats()
    print(step, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), *(stats[k] for k in KEYS))
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"]
    assert stats["reserved_bytes.all.peak"] >= stats["reserved_bytes.all.current"] == torch.cuda.memory_reserved()


def new(bytes_):
    return torch.empty(bytes_, dtype=torch.uint8, device="cuda")


def main():
    torch.cuda.init()
    say("start")
    held = [new(n) for n in (1, 512, 513, 1000, 100_000)]
    say("small")
    held += [new(4 * MIB), new(3 * MIB), new(40 * MIB)]
    say("large")
    empty = new(0)
    say("nothing")
    del held[1::2]
    say("some freed")
    torch.cuda.reset_peak_memory_stats()
    say("peaks reset")
    held.append(new(2 * MIB))
    say("again")
    torch.cuda.reset_accumulated_memory_stats()
    say("totals reset")
    try:
        new(1 << 40)
        raise AssertionError("an impossible request was served")
    except torch.OutOfMemoryError as error:
        text = str(error)
        assert text.startswith("CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of"), text
    say("out of memory")
    matrix = torch.ones(300, 300, device="cuda")
    product = (matrix @ matrix).relu().sum(0)
    say("operators")
    side = torch.cuda.Stream()
    product.record_stream(side)
    del held, empty, matrix, product
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    say("all freed")
    print("left", torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
