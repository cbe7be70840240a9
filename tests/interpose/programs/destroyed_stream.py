"""Memory on streams that other libraries make by the driver and destroy, as DALI and TensorRT do; then an allocation
fails. `install`: by spillway.install(); `late`: a block that was recorded on such a stream is freed after its end,
which PyTorch's own allocator does not survive.
"""
import ctypes
import sys

import torch

if "install" in sys.argv:
    import spillway

    spillway.install()
MIB = 1 << 20
driver = ctypes.CDLL("libcuda.so.1")


def room():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value


def block(size):
    return torch.zeros(size, dtype=torch.uint8, device="cuda")


def use_a_stream_of_another_library(cached, kept, late):
    handle = ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
    stream = torch.cuda.ExternalStream(handle.value)
    with torch.cuda.stream(stream):
        block(cached)
        held = block(kept) + 3
    used = block(kept)
    used.record_stream(stream)
    if not late:
        used = None
    assert driver.cuStreamDestroy_v2(handle) == 0
    return held, used


block(MIB)
total = room()
held = [use_a_stream_of_another_library(total // 8, 4 * MIB, "late" in sys.argv) for _ in range(3)]
large = [block(total // 4 - 16 * MIB) for _ in range(3)]  # with the cached eighths there is no room for it
print("served", all(bool((it == 3).all()) for it, _ in held))
held = None
large.append(block(total // 8))
print("served again")
