"""CUDA graphs as training and inference programs use them: a captured step, graphed callables, private pools.

Stands for: inference servers and Megatron-style training that capture a step once and replay it; the memory that a
graph's private pool keeps between replays; programs that make a mistake during capture and go on.
"""
import argparse
import gc

import torch

MIB = 1 << 20


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--replays", type=int, default=3)
    return parser.parse_args()


def model_of(width):
    return torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                               torch.nn.Linear(4 * width, width)).cuda()


def whole_step(arguments):
    """Capture of forward, backward and optimizer; replays allocate nothing."""
    model = model_of(arguments.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    data = torch.randn(arguments.batch, arguments.width, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)

    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    before = torch.cuda.memory_stats()
    for _ in range(arguments.replays):
        graph.replay()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    assert after["allocation.all.allocated"] == before["allocation.all.allocated"], "a replay allocated"
    assert after["num_device_alloc"] == before["num_device_alloc"]


def private_pool(arguments):
    """The pool of a graph keeps its segments while the graph lives, shares them with another, then gives them back."""
    gc.collect()
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    free = torch.cuda.mem_get_info()[0]
    x = torch.zeros(64 * MIB, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x * 2
        z = y + 1
    held = torch.cuda.memory_reserved()
    del y, z
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == held, "the pool of a live graph is not released"
    with torch.cuda.graph(second, pool=first.pool()):
        y = x * 3
        z = y + 1
    assert torch.cuda.memory_reserved() == held, "the second graph uses the same pool"
    first.replay()
    second.replay()
    torch.cuda.synchronize()
    del y, z, x
    first.reset()
    second.reset()
    del first, second
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved, (torch.cuda.memory_reserved(), reserved)
    assert torch.cuda.mem_get_info()[0] == free


def graphed_callables(arguments):
    model = model_of(arguments.width)
    sample = torch.randn(arguments.batch, arguments.width, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    optimizer = torch.optim.SGD(graphed.parameters(), lr=0.1)
    for _ in range(arguments.replays):
        optimizer.zero_grad(set_to_none=True)
        graphed(torch.randn_like(sample)).sum().backward()
        optimizer.step()
    torch.cuda.synchronize()


def side_streams():
    """Fork and join inside a capture."""
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    x = torch.ones(1 << 20, device="cuda")
    with torch.cuda.graph(graph):
        here = torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            y = x * 2
        z = x * 3
        here.wait_stream(side)
        total = y + z
    graph.replay()
    torch.cuda.synchronize()
    assert total.shape == x.shape


def unjoined_fork():
    """A fork that is not joined is refused."""
    side = torch.cuda.Stream()
    x = torch.ones(1 << 20, device="cuda")
    stray = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(stray):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                x.mul(2)
        raise AssertionError("an unjoined fork was accepted")
    except RuntimeError as error:
        assert "unjoined work" in str(error), error
    torch.cuda.synchronize()


def mistakes():
    """What is not allowed during capture fails with CUDA's words, and the program goes on."""
    x = torch.ones(1024, device="cuda")
    for mistake in (lambda: torch.cuda.synchronize(), lambda: x.sum().item(),
                    lambda: torch.cuda.current_stream().synchronize()):
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                x.mul(2)
                mistake()
            raise AssertionError("a capture with a synchronization was accepted")
        except RuntimeError as error:
            first = error.__context__
            assert "operation not permitted when stream is capturing" in str(first), first
            assert "operation failed due to a previous error during capture" in str(error), error
        torch.cuda.synchronize()
        assert x.sum().shape == ()


def main():
    arguments = parse()
    whole_step(arguments)
    graphed_callables(arguments)
    side_streams()
    private_pool(arguments)
    # Last: PyTorch itself does not take a failed capture out of its allocator's books.
    mistakes()
    unjoined_fork()
    print("peak", torch.cuda.max_memory_allocated(), "bytes")


if __name__ == "__main__":
    main()
