"""Steps whose work is launched by hand, as a compiled kernel's is: nobody but the device knows what it uses.

Prints how many virtual milliseconds a tensor's part of a step takes: before anything is moved, then with more in use
than the card has, then with that freed again.
"""
import ctypes

import torch

import simulator_control
from timed_steps import last_ms

MIB = 1 << 20


class Range(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("writes", ctypes.c_uint32),
                ("own", ctypes.c_uint32), ("other", ctypes.c_uint32)]


SUBMIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Range), ctypes.c_size_t,
                          ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)(simulator_control.CONTROL.submit)


def use_unseen(tensor, times=10, nanoseconds=200_000):
    read = Range(tensor.data_ptr(), tensor.nbytes, 0, 0, 0)
    for _ in range(times):
        assert SUBMIT(None, b"by_hand", ctypes.byref(read), 1, nanoseconds, None, None) == 0


def step(tensors):
    for tensor in tensors:
        tensor.mul_(2)
        use_unseen(tensor)
        for _ in range(120):
            torch.empty(1, device="cuda")
        for _ in range(240):
            tensor.view(-1)


def steps(tensors):
    """Milliseconds of the last, for each tensor."""
    return last_ms(lambda: step(tensors)) / len(tensors)


def main():
    tensors = [torch.empty(40 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
    full = torch.empty(70 * MIB, dtype=torch.uint8, device="cuda")
    print(f"before {steps(tensors):.2f}")
    del full
    more = torch.empty(170 * MIB, dtype=torch.uint8, device="cuda")
    print(f"moved {steps([*tensors, more]):.2f}")
    del more
    print(f"after {steps(tensors):.2f}")


if __name__ == "__main__":
    main()
