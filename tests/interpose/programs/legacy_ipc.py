"""Two processes share buffers by cuIpcGetMemHandle, as vLLM's all-reduce does: of a CUDA graph's pool, and a tensor.

The driver is asked for the allocation that a buffer lies in; its handle and the offset go to the other process, which
opens it and reads. Prints for each buffer what happened, and that torch.multiprocessing shares it in any case.
"""
import ctypes

import torch
import torch.multiprocessing as multiprocessing

COUNT = 700_000
RANGE_START, LAZY_PEER_ACCESS = 11, 1


class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_byte * 64)]


def driver():
    return ctypes.CDLL("libcuda.so.1")


def export(tensor):
    """Handle and offset, or the driver's error."""
    base, handle = ctypes.c_uint64(), Handle()
    address = ctypes.c_uint64(tensor.data_ptr())
    assert driver().cuPointerGetAttribute(ctypes.byref(base), RANGE_START, address) == 0
    error = driver().cuIpcGetMemHandle(ctypes.byref(handle), base)
    return error or (bytes(handle), tensor.data_ptr() - base.value)


def numbers_at(address):
    numbers = torch.empty(COUNT, dtype=torch.int32)
    assert driver().cuMemcpyDtoH_v2(ctypes.c_void_p(numbers.data_ptr()), ctypes.c_uint64(address), 4 * COUNT) == 0
    return numbers


def reader(queue, answers):
    torch.cuda.synchronize()
    for shared in iter(queue.get, None):
        if isinstance(shared, torch.Tensor):
            answers.put(shared.unique().tolist())
            continue
        data, offset = shared
        opened = ctypes.c_uint64()
        error = driver().cuIpcOpenMemHandle_v2(ctypes.byref(opened), Handle.from_buffer_copy(data), LAZY_PEER_ACCESS)
        assert error == 0, error
        answers.put(numbers_at(opened.value + offset).unique().tolist())
        queue.get()
        answers.put(numbers_at(opened.value + offset).unique().tolist())
        assert driver().cuIpcCloseMemHandle(opened) == 0


def share(name, buffer, change, queue, answers):
    handle = export(buffer)
    if isinstance(handle, int):
        print(name, "refused", handle)
    else:
        queue.put(handle)
        before = answers.get(timeout=60)
        change()
        torch.cuda.synchronize()
        queue.put("changed")
        print(name, "read", before, answers.get(timeout=60))
    queue.put(buffer)
    print(name, "sent", answers.get(timeout=60))


def main():
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=reader, args=(queue, answers), daemon=True)
    child.start()
    source = torch.full((COUNT,), 3, dtype=torch.int32, device="cuda")
    beside = torch.zeros(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = source + 1
        buffer = first * 2
    graph.replay()

    def run_again():
        source.fill_(10)
        graph.replay()

    share("graph", buffer, run_again, queue, answers)
    share("tensor", source, lambda: source.fill_(5), queue, answers)
    queue.put(None)
    child.join(60)
    assert child.exitcode == 0 and beside.sum().item() == 0


if __name__ == "__main__":
    main()
