"""A tensor whose memory Spillway has moved off the card is given to another process, which reads it and writes into it.

Natively the first allocation that does not fit is the end. Prints where the tensor lay before and after: 1 is the host
for the driver (cuPointerGetAttribute, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), 2 the device.
"""
import ctypes

import torch
import torch.multiprocessing as multiprocessing

MIB = 1 << 20
MEMORY_TYPE = 2


def memory_types(tensor):
    """Of each 2 MiB of the tensor."""
    driver, seen, kind = ctypes.CDLL("libcuda.so.1"), set(), ctypes.c_uint()
    for offset in range(0, tensor.numel(), 2 * MIB):
        address = ctypes.c_uint64(tensor.data_ptr() + offset)
        assert driver.cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE, address) == 0
        seen.add(kind.value)
    return sorted(seen)


def reader(queue, answers):
    tensor = queue.get()
    answers.put(bool((tensor == 7).all()))
    tensor.fill_(9)
    torch.cuda.synchronize()
    answers.put("written")


def main():
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=reader, args=(queue, answers))
    child.start()
    cold = [torch.full((40 * MIB,), 7, dtype=torch.uint8, device="cuda") for _ in range(3)]
    hot = torch.zeros(120 * MIB, dtype=torch.uint8, device="cuda")
    moved = next(tensor for tensor in cold if 1 in memory_types(tensor))
    print("before", memory_types(moved))
    del hot
    queue.put(moved)
    print("read", answers.get(timeout=60), answers.get(timeout=60))
    print("after", memory_types(moved), bool((moved == 9).all()), all(bool((other == 7).all()) for other in cold
                                                                    if other is not moved))
    child.join(60)


if __name__ == "__main__":
    main()
