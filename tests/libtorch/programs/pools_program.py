"""Memory pools in every kind. Prints what every allocator must say the same: its output with Spillway is compared
with the native allocator's."""
import ctypes
import gc
import sys

import torch

MIB = 1 << 20


def new(bytes_):
    return torch.empty(bytes_, dtype=torch.uint8, device="cuda")


def live(pool):
    return sorted((block["size"], block["requested_size"]) for segment in pool.snapshot()
                  for block in segment["blocks"] if block["state"] == "active_allocated")


def key(name):
    return torch.cuda.memory_stats()[name]


class Source:
    """The library that a pool's memory comes from."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        for name in ("source_asked", "source_freed"):
            getattr(self.library, name).restype = ctypes.c_size_t
        self.library.source_asked.argtypes = self.library.source_limit.argtypes = [ctypes.c_size_t]
        self.owner = torch.cuda.memory.CUDAPluggableAllocator(path, "source_malloc", "source_free")

    def pool(self, **settings):
        return torch.cuda.MemPool(self.owner.allocator(), **settings)

    def asked(self):
        return [size // MIB for size in map(self.library.source_asked, range(64)) if size]


def own_allocator(path):
    source = Source(path)
    pool = source.pool()
    torch.cuda.memory._record_memory_history(max_entries=1000, stacks="python")
    with torch.cuda.use_mem_pool(pool):
        held = [new(1000), new(2000), new(3 * MIB), new(4 * MIB), new(30 * MIB)]
    print("asked", source.asked(), live(pool))
    print("stats", key("allocated_bytes.all.current"), key("requested_bytes.all.current"),
          key("allocation.all.current"), key("reserved_bytes.all.current"))
    entries = [entry for entry in torch.cuda.memory._snapshot()["device_traces"][0] if entry["action"] == "alloc"]
    print("history", [entry["size"] for entry in entries])
    torch.cuda.memory._record_memory_history(None)
    held[2].fill_(1)
    address = held[3].data_ptr()
    del held[3]
    outside = new(4 * MIB)
    with torch.cuda.use_mem_pool(pool):
        held.append(new(4 * MIB))
    print("reused", held[-1].data_ptr() == address, outside.data_ptr() != address, len(source.asked()))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(50):
            held[2].add_(1)
    held[2].record_stream(side)
    address = held[2].data_ptr()
    del held[2]
    print("waits", key("allocated_bytes.all.current"), key("active_bytes.all.current"))
    torch.cuda.synchronize()
    new(512)  # the native allocator looks at events outside of pools only
    with torch.cuda.use_mem_pool(pool):
        held.append(new(3 * MIB))
    print("done", held[-1].data_ptr() == address, key("active_bytes.all.current"))
    source.library.source_limit(8 * MIB)
    with torch.cuda.use_mem_pool(pool):
        try:
            new(64 * MIB)
            print("served")
        except torch.OutOfMemoryError as error:
            print(str(error)[:47], key("num_ooms"))
    torch.cuda.empty_cache()
    print("kept", source.library.source_freed())
    held.clear()
    torch.cuda.empty_cache()
    print("kept", source.library.source_freed())
    pool = None
    gc.collect()
    torch.cuda.empty_cache()
    print("freed", source.library.source_freed(), key("allocated_bytes.all.current"))


def side_by_side(path):
    """What a library hands out piece after piece is a segment each, though nothing lies between them."""
    source = Source(path)
    assert source.library.source_side_by_side(ctypes.c_size_t(100 * MIB))
    pool = source.pool()
    with torch.cuda.use_mem_pool(pool):
        held = [new(30 * MIB), new(30 * MIB)]
    segments = pool.snapshot()
    print("segments", [(segment["total_size"] // MIB, len(segment["blocks"])) for segment in segments],
          abs(held[0].data_ptr() - held[1].data_ptr()) == 30 * MIB)


def outlived(path):
    """A tensor that outlives its pool."""
    source = Source(path)
    pool = source.pool()
    with torch.cuda.use_mem_pool(pool):
        tensor = new(3 * MIB)
    pool = None
    gc.collect()
    tensor.fill_(2)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("kept", source.library.source_freed())
    del tensor
    torch.cuda.empty_cache()
    print("freed", source.library.source_freed())


def on_out_of_memory(path):
    """What a pool has free serves others that would fail, if it says so."""
    for use in (False, True):
        pool = torch.cuda.MemPool(use_on_oom=use)
        with torch.cuda.use_mem_pool(pool):
            inside = new(2048 * MIB)
        del inside
        rest = new(1500 * MIB)
        try:
            new(1024 * MIB)
            print(use, "served")
        except torch.OutOfMemoryError:
            print(use, "failed")
        del pool, rest
        gc.collect()
        torch.cuda.empty_cache()


def no_split(path):
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        first, second = new(3 * MIB), new(3 * MIB)
    segments = pool.snapshot()
    print("segments", [len(segment["blocks"]) for segment in segments],
          {segment["is_expandable"] for segment in segments}, abs(first.data_ptr() - second.data_ptr()) >= 4 * MIB)


def empty_one(path):
    """A pool that goes empties its own cache, and no other's."""
    kept, gone = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(kept):
        new(20 * MIB)
    new(40 * MIB)
    with torch.cuda.use_mem_pool(gone):
        new(60 * MIB)
    print(torch.cuda.memory_reserved() // MIB)
    del gone
    print(torch.cuda.memory_reserved() // MIB)
    torch.cuda.empty_cache()
    print(torch.cuda.memory_reserved() // MIB)


def served(bytes_):
    try:
        return new(bytes_)
    except torch.OutOfMemoryError:
        return None


def within_a_fraction(path):
    """Memory of a pool's own allocator counts against the fraction, in both directions."""
    source = Source(path)
    pool, lending = source.pool(), source.pool(use_on_oom=True)
    torch.cuda.set_per_process_memory_fraction(80 * MIB / torch.cuda.mem_get_info()[1])
    with torch.cuda.use_mem_pool(pool):
        first = new(40 * MIB)
    with torch.cuda.use_mem_pool(lending):
        second = new(40 * MIB)
    address = second.data_ptr()
    print("full", served(40 * MIB), torch.cuda.memory_reserved() // MIB)
    del first, second
    lent = served(30 * MIB)
    print("lent", lent.data_ptr() == address, served(30 * MIB))
    del lent, lending, pool
    gc.collect()
    # Nothing emptied the cache: what the pools left idle makes room for others.
    outside = served(60 * MIB)
    pool = source.pool()
    with torch.cuda.use_mem_pool(pool):
        print("outside", outside is not None, served(30 * MIB), served(20 * MIB) is not None)
        del outside
        print("cached", served(60 * MIB) is not None, torch.cuda.memory_reserved() // MIB)


def outlived_within_a_fraction(path):
    """Segments of a pool that is gone make room one after the other when requests are short, and the limit follows."""
    source = Source(path)
    pool = source.pool()
    torch.cuda.set_per_process_memory_fraction(80 * MIB / torch.cuda.mem_get_info()[1])
    with torch.cuda.use_mem_pool(pool):
        kept = [new(20 * MIB) for _ in range(3)]
    del pool
    gc.collect()
    print("outlived", served(40 * MIB))
    del kept[:2]
    outside = served(60 * MIB)
    print("two", outside is not None, served(20 * MIB))
    del outside, kept
    print("all", served(78 * MIB) is not None, torch.cuda.memory_reserved() // MIB)


def kinds(path):
    """A pool with an allocator of its own does not expand."""
    source = Source(path)
    with torch.cuda.use_mem_pool(source.pool()):
        new(4 * MIB)
        print({segment["is_expandable"] for segment in torch.cuda.memory_snapshot()})


def throwing(path):
    """What a pool's own allocator throws reaches who asked, and nothing else is changed."""
    library = ctypes.CDLL(path)
    owner = torch.cuda.memory.CUDAPluggableAllocator(path, "source_malloc", "source_free")
    pool = torch.cuda.MemPool(owner.allocator())
    with torch.cuda.use_mem_pool(pool):
        first = new(3 * MIB)
        library.source_throws(1)
        for bytes_ in (30 * MIB, 31 * MIB):
            try:
                new(bytes_)
            except RuntimeError as error:
                print(type(error).__name__, str(error).splitlines()[0], key("num_ooms"))
        second = new(4 * MIB)  # what it gave before serves on
        library.source_throws(0)
        third = new(30 * MIB)
    print(live(pool), key("reserved_bytes.all.current") // MIB)
    del first, second, third, pool
    gc.collect()
    torch.cuda.empty_cache()
    print("left", key("reserved_bytes.all.current"))


def throwing_when_given_back(path):
    library = ctypes.CDLL(path)
    owner = torch.cuda.memory.CUDAPluggableAllocator(path, "source_malloc", "source_free")
    pool = torch.cuda.MemPool(owner.allocator())
    with torch.cuda.use_mem_pool(pool):
        tensor = new(3 * MIB)
    del pool
    gc.collect()
    del tensor
    library.source_throws(1)
    try:
        torch.cuda.empty_cache()
    except RuntimeError as error:
        print(str(error).splitlines()[0])


def uses(path):
    pool = torch.cuda.MemPool()
    print("uses", pool.use_count())
    with torch.cuda.use_mem_pool(pool):
        print("uses", pool.use_count())
        inside = new(MIB)
    print("uses", pool.use_count())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        inside = inside + 1
    print("uses", pool.use_count())
    del graph
    print("uses", pool.use_count())


def inside_each_other(path):
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(outer):
        first = new(4 * MIB)
        with torch.cuda.use_mem_pool(inner):
            second = new(5 * MIB)
        third = new(6 * MIB)
    print(len(live(outer)), live(outer), live(inner), first.data_ptr() != second.data_ptr() != third.data_ptr())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
