"""What PyTorch computes with cuDNN, cuFFT, cuBLAS and cuSOLVER has the CPU's values, bit for bit: results and gradients
of convolutions, batch norm, CTC loss, Fourier transforms and linear algebra."""
import copy

import torch
from torch import nn
from torch.nn import functional

linalg = torch.linalg
failed = []
checks = 0


def results_of(function, inputs):
    inputs = [one.detach().requires_grad_() if isinstance(one, torch.Tensor) else one for one in inputs]
    results = function(*inputs)
    results = list(results) if isinstance(results, tuple) else [results]
    total = sum(one.abs().sum() for one in results if one.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    for one in inputs:
        parameters = one.parameters() if isinstance(one, nn.Module) else [one]
        results += [parameter.grad for parameter in parameters if parameter.grad is not None]
    return [one.detach().cpu() for one in results]


def check(name, function, *inputs):
    global checks
    checks += 1
    expected = results_of(function, inputs)
    on_card = results_of(function, [copy.deepcopy(one).to("cuda") for one in inputs])
    if len(expected) != len(on_card) or not all(map(torch.equal, expected, on_card)):
        failed.append(name)


def definite(*shape):
    made = torch.randn(*shape)
    return made @ made.mT + shape[-1] * torch.eye(shape[-1])


torch.manual_seed(1)
random = torch.randn
for layout in (torch.contiguous_format, torch.channels_last):
    image = random(2, 8, 10, 10).contiguous(memory_format=layout)
    check("conv2d", lambda x, w, b: functional.conv2d(x, w, b, padding=1), image, random(16, 8, 3, 3), random(16))
    check("grouped", lambda x, w: functional.conv2d(x, w, groups=4), image, random(16, 2, 3, 3))
    check("depthwise", lambda x, w: functional.conv2d(x, w, groups=8), image, random(8, 1, 3, 3))
    check("transposed", lambda x, w: functional.conv_transpose2d(x, w, stride=2), image, random(8, 4, 3, 3))
    check("batch norm", lambda module, x: module(x), nn.BatchNorm2d(8), image)
check("conv1d", functional.conv1d, random(2, 8, 30), random(16, 8, 3))
check("conv3d", functional.conv3d, random(2, 4, 6, 6, 6), random(8, 4, 3, 3, 3))
check("bfloat16", functional.conv2d, random(2, 8, 10, 10).bfloat16(), random(16, 8, 3, 3).bfloat16())
labels = torch.randint(1, 6, (15,), dtype=torch.int32)
check("ctc", lambda x: functional.ctc_loss(x.log_softmax(2), labels, [20] * 3, [5] * 3), random(20, 3, 6))
check("rfft", torch.fft.rfft, random(4, 64))
check("fft2", torch.fft.fft2, random(4, 16, 16))
check("irfft", torch.fft.irfft, torch.complex(random(4, 33), random(4, 33)))
check("cholesky", linalg.cholesky, definite(3, 8, 8))
check("eigh", linalg.eigh, definite(3, 8, 8))
check("qr", linalg.qr, random(3, 9, 6))
check("svd", lambda a: linalg.svd(a, full_matrices=False), random(3, 9, 6))
check("inv", linalg.inv, random(3, 8, 8))
check("det", linalg.det, random(3, 8, 8))
check("solve", linalg.solve, random(3, 8, 8), random(3, 8, 2))
check("lstsq", lambda a, b: linalg.lstsq(a, b)[0], random(3, 9, 6), random(3, 9, 2))
check("triangular", lambda a, b: linalg.solve_triangular(a, b, upper=True), random(3, 8, 8), random(3, 8, 2))
check("pinv", linalg.pinv, random(9, 6))
for name in failed:
    print("differs:", name)
print("checks", checks, "failed", len(failed))
torch.cuda.synchronize()
print("left", torch.cuda.memory_allocated())
