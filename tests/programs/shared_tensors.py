"""CUDA tensors passed between processes with torch.multiprocessing.

Stands for: data loaders and reinforcement-learning actors that hand finished batches over on the GPU, and servers whose
workers share one copy of the weights. `--values` also compares the bytes, for simulators that compute them.
"""
import argparse

import torch
import torch.multiprocessing as multiprocessing

MIB = 1 << 20


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256, help="size of the shared tensor")
    parser.add_argument("--values", action="store_true")
    return parser.parse_args()


def consumer(queue, answers, values):
    batch = queue.get()
    assert batch.is_cuda
    answers.put((tuple(batch.shape), torch.cuda.memory_allocated()))
    if values:
        assert int(batch[0]) == 7 and int(batch[-1]) == 7, batch
        batch.fill_(9)
        torch.cuda.synchronize()
    answers.put("done")
    del batch
    weights = queue.get()
    assert len(weights) == 3 and all(weight.is_cuda for weight in weights)
    answers.put(sum(weight.numel() for weight in weights))


def main():
    arguments = parse()
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=consumer, args=(queue, answers, arguments.values))
    child.start()
    batch = torch.full((arguments.mib * MIB,), 7, dtype=torch.uint8, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    queue.put(batch)
    shape, allocated = answers.get(timeout=60)
    assert shape == tuple(batch.shape)
    assert allocated == 0, "the consumer's allocator owns nothing of it"
    assert answers.get(timeout=60) == "done"
    lost = free - torch.cuda.mem_get_info()[0]
    assert lost < 2 * 1024 * MIB, "the shared batch is there once"
    if arguments.values:
        assert int(batch[0]) == 9 and int(batch[-1]) == 9, "what the consumer wrote"
    weights = [torch.empty(1000 * (i + 1), device="cuda") for i in range(3)]
    queue.put(weights)
    assert answers.get(timeout=60) == 6000
    child.join(60)
    assert child.exitcode == 0, child.exitcode
    print("peak", torch.cuda.max_memory_allocated(), "bytes")


if __name__ == "__main__":
    main()
