"""Checkpoints of graphs' pools as torch.compile's CUDA graph trees use them. Prints what every allocator must say the
same: its output with Spillway is compared with the native allocator's."""
import gc
import sys

import torch

MIB = 1 << 20


def new(bytes_):
    return torch.empty(bytes_, dtype=torch.uint8, device="cuda")


def live(pool):
    """Address -> bytes that were asked for, of the pool's live blocks."""
    return {block["address"]: block["size"] for segment in torch.cuda.memory_snapshot()
            if tuple(segment["segment_pool_id"]) == tuple(pool) for block in segment["blocks"]
            if block["state"] == "active_allocated"}


def captured(make, pool=None, stream=None):
    graph = torch.cuda.CUDAGraph()
    stream = stream or torch.cuda.Stream()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        outputs = make()
    return graph, outputs


def restored(pool, state, stale=()):
    storages = [tensor.untyped_storage()._cdata for tensor in stale]
    torch._C._cuda_setCheckpointPoolState(torch.cuda.current_device(), state, storages, [])


def state_of(pool):
    return torch._C._cuda_getCheckpointState(torch.cuda.current_device(), pool)


def round_trip():
    stream = torch.cuda.Stream()
    graph, outputs = captured(lambda: [new(n) for n in (1000, 3 * MIB, 512, 40 * MIB)], stream=stream)
    pool = graph.pool()
    addresses = [tensor.data_ptr() for tensor in outputs]
    before = live(pool)
    state = state_of(pool)
    # What the program frees is live again in the checkpoint, at its address.
    del outputs[1], outputs[2]
    print("freed", len(live(pool)))
    restored(pool, state)
    print("back", live(pool) == before)
    # Nobody owns the blocks that came back without a tensor: the next checkpoint takes them.
    empty_graph, _ = captured(lambda: None, pool=pool, stream=stream)
    later = state_of(pool)
    restored(pool, later)
    print("again", live(pool) == before)
    # Another graph takes free bytes only.
    second, more = captured(lambda: [new(5 * MIB), new(100)], pool=pool, stream=stream)
    print("apart", all(tensor.data_ptr() not in addresses for tensor in more))
    grown = live(pool)
    # The first checkpoint again: the second graph's tensors are stale.
    restored(pool, state, more)
    print("stale", live(pool) == before, set(grown) - set(before) == {tensor.data_ptr() for tensor in more})
    del more, second, empty_graph
    stats = torch.cuda.memory_stats()
    print("allocated", stats["allocated_bytes.all.current"])
    del graph, outputs


def live_check():
    graph, outputs = captured(lambda: [new(2 * MIB), new(512)])
    pool, device = graph.pool(), torch.cuda.current_device()
    check = lambda expected: torch._C._cuda_checkPoolLiveAllocations(device, pool, set(expected))
    addresses = [tensor.data_ptr() for tensor in outputs]
    print("check", check(addresses), check(addresses[:1]), check([]), check(addresses + [1]))
    outputs.clear()
    print("check", check(addresses), check([]))


def refusals():
    for what in (lambda: state_of((0, 12345)), lambda: torch._C._cuda_checkPoolLiveAllocations(0, (0, 12345), set())):
        try:
            what()
            print("nothing refused")
        except RuntimeError:
            print("refused")


def released():
    """A pool's pages come back with its last user."""
    graph, outputs = captured(lambda: [new(64 * MIB)])
    other, more = captured(lambda: [new(8 * MIB)], pool=graph.pool())
    del graph, outputs
    torch.cuda.empty_cache()
    print("shared", torch.cuda.memory_reserved() >= 64 * MIB)
    state = state_of(other.pool())
    del other, more, state
    gc.collect()
    torch.cuda.empty_cache()
    print("gone", torch.cuda.memory_reserved())


def trees():
    """CUDA graph trees through torch.compile: two paths that share a beginning, replayed in turn."""
    from torch._inductor import cudagraph_trees

    @torch.compile(backend="cudagraphs")
    def first(x):
        return x * 2 + 1

    @torch.compile(backend="cudagraphs")
    def left(x):
        y = x.relu()
        return y - 3, y * y

    @torch.compile(backend="cudagraphs")
    def right(x):
        return x.cos() * x.sum()

    sums = []
    x = torch.arange(4 * MIB, device="cuda", dtype=torch.float32) / MIB
    for step in range(8):
        torch.compiler.cudagraph_mark_step_begin()
        y = first(x + step)
        if step % 2 == 0:
            a, b = left(y)
            sums.append((a.sum() + b.mean()).item())
        else:
            sums.append(right(y).mean().item())
    print("sums", sums)
    manager = cudagraph_trees.get_container(0).tree_manager
    print("trees", manager is not None and manager.new_graph_id().id)
    print("allocated", torch.cuda.memory_allocated())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
