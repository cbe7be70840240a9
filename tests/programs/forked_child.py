"""A forked child: one that leaves CUDA alone works, one that uses its parent's is told so."""
import os

import torch

held = torch.empty(1 << 20, device="cuda")


def in_child(function):
    """The child's exit code; it leaves without the parent's handlers, as worker processes do."""
    child = os.fork()
    if child == 0:
        os._exit(function())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def on_cpu():
    return 0 if torch.arange(10).sum().item() == 45 else 1


def on_cuda():
    try:
        torch.empty(1, device="cuda")
    except RuntimeError as error:
        return 7 if "forked subprocess" in str(error) else 1
    return 0


def on_free():
    global held
    del held
    return 0


assert in_child(on_cpu) == 0
assert in_child(on_free) == 0
assert in_child(on_cuda) == 7
assert torch.empty(1, device="cuda").is_cuda and held.is_cuda
