"""What PyTorch computes with cuDNN, cuFFT, cuBLAS and cuSOLVER has the CPU's values, bit for bit: results and gradients
of convolutions, batch norm, CTC loss, Fourier transforms and linear algebra. Recurrent layers and least squares have
them up to rounding."""
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


def check(name, function, *inputs, same=torch.equal):
    global checks
    checks += 1
    expected = results_of(function, inputs)
    on_card = results_of(function, [copy.deepcopy(one).to("cuda") for one in inputs])
    if len(expected) != len(on_card) or not all(map(same, expected, on_card)):
        failed.append(name)


def near(a, b):
    """oneDNN adds up in another order when it computes several layers at once; MKL's least squares do so with the
    alignment of their scratch memory, and differ from call to call on the CPU alone."""
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def roughly(a, b):
    """The card computes in half precision where the CPU has all."""
    return a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=0.02, atol=0.02)


def recurrent(layer, inputs, *state):
    outputs, states = layer(inputs, *state)
    if isinstance(outputs, nn.utils.rnn.PackedSequence):
        outputs = outputs.data
    return outputs, *(states if isinstance(states, tuple) else (states,))


def with_autocast(layer, inputs):
    with torch.autocast("cuda", torch.float16, enabled=inputs.is_cuda):
        return tuple(one + 2 for one in recurrent(layer, inputs))  # no sign that rounding could turn


def packed(layer, inputs):
    return recurrent(layer, nn.utils.rnn.pack_padded_sequence(inputs, [7, 5, 5, 2]))


def dropout_repeats():
    """Between layers a mask is drawn in the forward pass; the backward pass has to use it again."""
    layer = nn.GRU(5, 6, 2, dropout=0.5).cuda()
    inputs = torch.randn(7, 4, 5, device="cuda", dtype=torch.float32, requires_grad=True)
    direction = torch.randn_like(inputs)
    def loss(at):
        torch.manual_seed(3)
        return layer(at)[0].sum()
    loss(inputs).backward()
    step = 1e-2
    with torch.no_grad():
        slope = (loss(inputs + step * direction) - loss(inputs - step * direction)) / (2 * step)
    return torch.allclose(slope, (inputs.grad * direction).sum(), rtol=1e-2, atol=1e-3)


def parts_of_norm(images, norm):
    """What torch.nn.SyncBatchNorm does on two ranks with parts of unlike sizes, on one: statistics of each part, and of
    both."""
    parts = images.detach().split([4, 2])
    means, deviations = zip(*(torch.batch_norm_stats(part, norm.eps) for part in parts))
    counts = torch.tensor([part[:, 0].numel() for part in parts], dtype=torch.float32, device=images.device)
    mean, deviation = torch.batch_norm_gather_stats_with_counts(
        images, torch.stack(means), torch.stack(deviations), norm.running_mean, norm.running_var, 0.1, norm.eps, counts)
    return parts, mean, deviation, counts


def synchronized_norm(images, _, norm):
    norm = copy.deepcopy(norm)  # it counts what it has seen
    if not images.is_cuda:
        with torch.no_grad():
            return norm(images.float()).to(images.dtype), norm.running_mean, norm.running_var
    with torch.no_grad():
        parts, mean, deviation, _ = parts_of_norm(images, norm)
        made = [torch.batch_norm_elemt(part, norm.weight, norm.bias, mean, deviation, norm.eps) for part in parts]
        return torch.cat(made), norm.running_mean, norm.running_var


def gradients_of_synchronized_norm(images, gradient, norm):
    if not images.is_cuda:
        images = images.detach().float().requires_grad_()
        found = torch.autograd.grad(norm(images), (images, norm.weight, norm.bias), gradient.detach().float())
        return found[0].to(gradient.dtype), *found[1:]
    with torch.no_grad():
        parts, mean, deviation, counts = parts_of_norm(images, norm)
        gradients = gradient.split([4, 2])
        sums = [torch.batch_norm_backward_reduce(one, part, mean, deviation, norm.weight, True, True, True)
                for one, part in zip(gradients, parts)]
        sum_dy, sum_dy_xmu, of_weight, of_bias = (sum(of) for of in zip(*sums))
        made = [torch.batch_norm_backward_elemt(one, part, mean, deviation, norm.weight, sum_dy, sum_dy_xmu,
                                                counts.int()) for one, part in zip(gradients, parts)]
        return torch.cat(made), of_weight, of_bias


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
check("lstsq", lambda a, b: linalg.lstsq(a, b)[0], random(3, 9, 6), random(3, 9, 2), same=near)
check("triangular", lambda a, b: linalg.solve_triangular(a, b, upper=True), random(3, 8, 8), random(3, 8, 2))
check("pinv", linalg.pinv, random(9, 6))
for kind in (nn.LSTM, nn.GRU, nn.RNN):
    for options in ({}, {"bidirectional": True, "num_layers": 2}, {"bias": False}, {"batch_first": True}):
        check(f"{kind.__name__} {options}", recurrent, kind(5, 6, **options), random(7, 4, 5), same=near)
    check(f"{kind.__name__} packed", packed, kind(5, 6, 2), random(7, 4, 5), same=near)
    check(f"{kind.__name__} double", recurrent, kind(5, 6).double(), random(7, 4, 5).double(), same=near)
    for options in ({}, {"bidirectional": True, "num_layers": 2}, {"bias": False}):
        check(f"{kind.__name__} {options} with autocast", with_autocast, kind(5, 6, **options), random(7, 4, 5),
              same=roughly)
    check(f"{kind.__name__} without a batch", recurrent, kind(5, 6), random(7, 5), same=near)
check("RNN relu", recurrent, nn.RNN(5, 6, 2, nonlinearity="relu"), random(7, 4, 5), same=near)
check("LSTM with a projection and autocast", with_autocast, nn.LSTM(5, 6, 2, proj_size=3), random(7, 4, 5),
      same=roughly)
check("LSTM with a projection", recurrent, nn.LSTM(5, 6, 2, proj_size=3), random(7, 4, 5), same=near)
check("GRU with a state", recurrent, nn.GRU(5, 6, 2), random(7, 4, 5), random(2, 4, 6), same=near)
check("LSTM cell", lambda cell, x: cell(x), nn.LSTMCell(5, 6), random(4, 5), same=near)
check("LSTM cell without bias", lambda cell, x, h, c: cell(x, (h, c)), nn.LSTMCell(5, 6, bias=False), random(4, 5),
      random(4, 6), random(4, 6), same=near)
check("GRU cell", lambda cell, x, h: cell(x, h), nn.GRUCell(5, 6), random(4, 5), random(4, 6), same=near)
check("depthwise in 3D", lambda x, w: functional.conv3d(x, w, groups=4), random(2, 4, 6, 6, 6), random(4, 1, 3, 3, 3))
check("affine grid", lambda x: torch.cudnn_affine_grid_generator(x, 2, 3, 5, 4) if x.is_cuda else
      functional.affine_grid(x, (2, 3, 5, 4), align_corners=True), random(2, 2, 3))
image, weight, bias = random(2, 8, 10, 10), random(16, 8, 3, 3), random(16)
check("cuDNN's convolution", lambda x, w: torch.cudnn_convolution(
    x, w, [1, 1], [2, 2], [1, 1], 1, False, False, False) if x.is_cuda else
    functional.conv2d(x, w, padding=1, stride=2), image, weight)
check("cuDNN's transposed convolution", lambda x, w: torch.cudnn_convolution_transpose(
    x, w, [1, 1], [0, 0], [2, 2], [1, 1], 1, False, False, False) if x.is_cuda else
    functional.conv_transpose2d(x, w, padding=1, stride=2), image, random(8, 16, 3, 3))
with torch.no_grad():
    check("cuDNN's convolution with ReLU", lambda x, w, b: torch.cudnn_convolution_relu(
        x, w, b, [1, 1], [0, 0], [1, 1], 1) if x.is_cuda else functional.conv2d(x, w, b).relu(), image, weight, bias)
    check("cuDNN's convolution with a sum and ReLU", lambda x, w, z, b: torch.cudnn_convolution_add_relu(
        x, w, z, 2, b, [1, 1], [0, 0], [1, 1], 1) if x.is_cuda else (functional.conv2d(x, w, b) + 2 * z).relu(),
        image, weight, random(2, 16, 8, 8), bias)
    for operator, *shapes in ((torch.mm, (5, 7), (7, 6)), (torch.bmm, (3, 5, 7), (3, 7, 6)),
                              (torch.addmm, (5, 6), (5, 7), (7, 6)), (torch.baddbmm, (3, 5, 6), (3, 5, 7), (3, 7, 6))):
        check(f"{operator.__name__} in 32 bit", lambda *of: operator(*of, out_dtype=torch.float32) if of[0].is_cuda else
              operator(*(one.float() for one in of)), *(random(*shape).bfloat16() for shape in shapes))
for kind in (torch.float32, torch.bfloat16):
    for name, function in (("results", synchronized_norm), ("gradients", gradients_of_synchronized_norm)):
        check(f"{name} of a synchronized norm in {kind}", function, random(6, 4, 5, 3).to(kind),
              random(6, 4, 5, 3).to(kind), nn.BatchNorm2d(4), same=near if kind is torch.float32 else roughly)
checks += 1
if not dropout_repeats():
    failed.append("the dropout between layers")
for name in failed:
    print("differs:", name)
print("checks", checks, "failed", len(failed))
torch.cuda.synchronize()
# PyTorch keeps the states of cuDNN's dropout for good.
states = 2048 * 48 * torch.cuda.get_device_properties(0).multi_processor_count
torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
print("left", torch.cuda.memory_allocated() - states)
