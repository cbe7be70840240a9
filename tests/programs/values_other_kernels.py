"""What is no operator of PyTorch's has the CPU's values: operators of a library with CPU kernels, those that Python
defines, Triton's kernels, and what torch.compile compiles.

values_other_kernels.py LIBRARY [early]: loaded before the first use of the device, or after it
"""
import sys

import torch
import triton
import triton.language as tl

failed = []
checks = 0


def check(name, value, expected):
    global checks
    checks += 1
    if not torch.equal(value.cpu(), expected):
        failed.append(name)


@triton.jit
def add(x, y, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, at < count) + tl.load(y + at, at < count), at < count)


@torch.library.custom_op("spillway_programs::scaled", mutates_args=(), device_types=("cpu", "cuda"))
def scaled(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.device.type == where, "a kernel in Python gets the program's own tensors"
    return tensor * 3


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 4))


where = "cuda"
on_host = torch.arange(1000, dtype=torch.float32)
if sys.argv[2:]:
    torch.ops.load_library(sys.argv[1])
x = on_host.to("cuda")
torch.ops.load_library(sys.argv[1])
if not sys.argv[2:]:
    check("torch's own", x + x, on_host + on_host)  # the first operator after the library is loaded
check("times", torch.ops.spillway_test.times(x, 1.5), on_host * 1.5)
check("times.twice", torch.ops.spillway_test.times.twice(x[::2]), on_host[::2] * 2)
check("on_cuda_alone", torch.ops.spillway_test.on_cuda_alone(x), on_host)
check("scaled", scaled(x), on_host * 3)
out = torch.empty_like(x)
add[(4,)](x, x, out, 1000, block=256)
check("triton", out, on_host * 2)
inputs = torch.randn(8, 16)
compiled = torch.compile(model().cuda())
losses = [compiled(inputs.cuda()).square().mean(), model()(inputs).square().mean()]
losses[0].backward()
check("compiled", losses[0].detach(), losses[1].detach())
for name in failed:
    print(name)
print("checks", checks, "failed", len(failed))
del x, out, losses, compiled
torch.cuda.synchronize()
torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
print("left", torch.cuda.memory_allocated())
