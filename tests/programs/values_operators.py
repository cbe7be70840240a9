"""Computes some hundreds of operator calls on the CPU and on `cuda` and compares results, changed arguments and
gradients bit for bit. Prints one line per difference and a last line `operators N differences M`.

usage: values_operators.py [only]     `only`: run the cases whose name contains it
"""
import sys
import traceback

import torch
import torch.nn.functional as F

torch.set_num_threads(2)
CASES = []  # (name, function, tensors, want gradients)


def case(name, function, *tensors, grad=False):
    CASES.append((name, function, tensors, grad))


def numbers(*shape, dtype=torch.float32, seed=0, low=-2.0, high=2.0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) > 0.5
    if dtype.is_complex:
        return torch.complex(numbers(*shape, seed=seed), numbers(*shape, seed=seed + 1))
    if not dtype.is_floating_point:
        return torch.randint(0, 7, shape, generator=g, dtype=dtype)
    return (torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low).to(dtype)


def positive(*shape, seed=0):
    return numbers(*shape, seed=seed, low=0.1, high=2.0)


def elementwise():
    x, y = numbers(3, 5), numbers(3, 5, seed=1)
    for name in ("abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac neg reciprocal round sigmoid sign sin "
                 "sinh tan tanh trunc square sgn signbit isnan isinf isfinite logical_not positive deg2rad rad2deg "
                 "sinc i0 erfinv nan_to_num").split():
        function = getattr(torch, name)
        safe = numbers(3, 5, low=-0.9, high=0.9)
        case(name, function, safe, grad=name in ("exp", "sin", "tanh", "sigmoid", "abs", "erf"))
    for name in "log log2 log10 log1p sqrt rsqrt lgamma digamma".split():
        case(name, getattr(torch, name), positive(3, 5), grad=True)
    for name in ("add sub mul div atan2 fmod remainder maximum minimum hypot copysign nextafter logaddexp eq ne lt le "
                 "gt ge logical_and logical_or logical_xor fmax fmin heaviside").split():
        case(name, getattr(torch, name), x, y, grad=name in ("add", "sub", "mul", "div", "maximum", "logaddexp"))
    case("pow", torch.pow, positive(3, 5), y, grad=True)
    case("pow scalar", lambda a: a ** 3, x, grad=True)
    case("pow of scalar", lambda a: 2 ** a, x)
    case("float_power", torch.float_power, positive(4), numbers(4))
    case("add broadcast", torch.add, numbers(3, 1, 5), numbers(4, 1), grad=True)
    case("add alpha", lambda a, b: torch.add(a, b, alpha=3), x, y)
    case("add scalar", lambda a: a + 2.5, x)
    case("add mixed types", torch.add, x, numbers(3, 5, dtype=torch.int64))
    case("add int scalar to half", lambda a: a + 1, numbers(9, dtype=torch.float16))
    case("add transposed", lambda a, b: a.t() + b, numbers(5, 3), x)
    case("add cpu scalar tensor", lambda a: a + torch.tensor(3.0), x)
    case("int division", lambda a, b: torch.div(a, b + 1, rounding_mode="floor"), numbers(9, dtype=torch.int32),
         numbers(9, dtype=torch.int32, seed=1))
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "gcd", "lcm"):
        case(op, getattr(torch, op), numbers(7, dtype=torch.int64), numbers(7, dtype=torch.int64, seed=4))
    case("bitwise_not", torch.bitwise_not, numbers(7, dtype=torch.bool))
    case("where", torch.where, numbers(3, 5, dtype=torch.bool), x, y)
    case("where scalar", lambda m, a: torch.where(m, a, 0.5), numbers(3, 5, dtype=torch.bool), x)
    case("clamp", lambda a: a.clamp(-0.5, 0.5), x, grad=True)
    case("clamp tensor", lambda a, b: a.clamp(min=b), x, y)
    case("lerp", lambda a, b: torch.lerp(a, b, 0.3), x, y, grad=True)
    case("addcmul", lambda a, b: torch.addcmul(a, b, a, value=0.5), x, y, grad=True)
    case("addcdiv", lambda a, b: torch.addcdiv(a, b, a.abs() + 1, value=0.5), x, y, grad=True)
    case("bfloat16", lambda a, b: a * b + a, numbers(17, dtype=torch.bfloat16),
         numbers(17, dtype=torch.bfloat16, seed=2))
    case("complex", lambda a: (a * a.conj()).real + a.imag, numbers(6, dtype=torch.complex64))
    case("complex angle", lambda a: torch.angle(a) + a.abs(), numbers(6, dtype=torch.complex64))
    case("conj matmul", lambda a: a @ a.conj().t(), numbers(3, 4, dtype=torch.complex64))
    case("polar", lambda a: torch.view_as_real(torch.polar(a.abs(), a)), x)
    case("isin", lambda a: torch.isin(a, torch.tensor([1, 3], device=a.device)), numbers(9, dtype=torch.int64))
    case("isclose", lambda a, b: torch.isclose(a, b + 1e-9), x, x)
    case("threshold", lambda a: F.threshold(a, 0.1, 20), x)
    for name in ("relu gelu silu elu selu celu leaky_relu hardtanh hardswish softplus logsigmoid mish relu6 "
                 "tanhshrink").split():
        case("F." + name, getattr(F, name), x, grad=True)
    case("gelu tanh", lambda a: F.gelu(a, approximate="tanh"), x, grad=True)
    case("prelu", F.prelu, numbers(2, 3, 4), numbers(3), grad=True)
    case("glu", F.glu, numbers(3, 6), grad=True)


def reductions():
    x = numbers(4, 5, 6)
    for name in ("sum mean prod std var amax amin logsumexp all any median norm argmax argmin nansum "
                 "count_nonzero").split():
        function = getattr(torch, name)
        if name != "logsumexp" and name not in ("amax", "amin"):
            case(name + " all", function, x)
        if name != "norm":
            case(name + " dim", lambda a, f=function: f(a, dim=1), x,
                 grad=name in ("sum", "mean", "prod", "std", "var", "amax", "logsumexp"))
    case("sum dtype", lambda a: a.sum(dtype=torch.float64), x)
    case("sum bool", torch.sum, numbers(40, dtype=torch.bool))
    case("sum half", lambda a: a.sum(0), numbers(40, 3, dtype=torch.float16))
    case("mean keepdim", lambda a: a.mean((0, 2), keepdim=True), x, grad=True)
    case("max dim", lambda a: torch.max(a, 1), x)
    case("min dim", lambda a: torch.min(a, 2), x)
    case("aminmax", torch.aminmax, x)
    case("var_mean", lambda a: torch.var_mean(a, dim=(0, 1), unbiased=False), x)
    case("cumsum", lambda a: a.cumsum(1), x, grad=True)
    case("cumprod", lambda a: a.cumprod(1), x, grad=True)
    case("cummax", lambda a: a.cummax(1), x)
    case("logcumsumexp", lambda a: a.logcumsumexp(1), x)
    case("linalg vector norm", lambda a: torch.linalg.vector_norm(a, 3, dim=-1), x, grad=True)
    case("kthvalue", lambda a: a.kthvalue(2, dim=1), x)
    case("mode", lambda a: a.mode(0), numbers(6, 3, dtype=torch.int64))
    case("quantile", lambda a: a.quantile(0.3, dim=1), x)
    case("equal", lambda a: torch.tensor(torch.equal(a, a.clone())), x)
    case("allclose", lambda a: torch.tensor(torch.allclose(a, a)), x)
    case("bincount", lambda a: torch.bincount(a), numbers(30, dtype=torch.int64))
    case("histc", lambda a: torch.histc(a, 5, -2, 2), x)
    case("trace", torch.trace, numbers(4, 4))
    case("dist", torch.dist, numbers(5), numbers(5, seed=3))
    case("cdist", torch.cdist, numbers(4, 3), numbers(5, 3), grad=True)
    case("renorm", lambda a: a.renorm(2, 0, 1.0), numbers(4, 3))


def indexing():
    x = numbers(6, 5)
    rows = torch.tensor([0, 2, 2, 5])
    case("index rows", lambda a, i: a[i], x, rows, grad=True)
    case("index two", lambda a, i: a[i, i % 5], x, rows, grad=True)
    case("index mask", lambda a: a[a > 0], x)
    case("index cpu indices", lambda a: a[torch.tensor([1, 3])], x)
    case("index slice", lambda a: a[1:5:2, ::2], x, grad=True)
    case("index none", lambda a, i: a[:, None, i % 5], x, rows)
    case("setitem", lambda a, i: a.__setitem__(i, 3.0), x, rows)
    case("setitem mask", lambda a: a.__setitem__(a > 0, 0.0), x)
    case("setitem tensor", lambda a, b: a.__setitem__((slice(None), 1), b), x, numbers(6))
    case("index_put accumulate", lambda a, i: a.index_put_((i,), torch.ones(4, 5, device=a.device), accumulate=True), x,
         rows)
    case("gather", lambda a: a.gather(1, torch.tensor([[0], [4], [1], [2], [3], [0]], device=a.device)), x, grad=True)
    case("scatter", lambda a, i: a.scatter(0, i.view(4, 1), 7.0), x, rows)
    case("scatter_add", lambda a, i: a.scatter_add(0, i.view(4, 1), torch.ones(4, 1, device=a.device)), x, rows)
    case("scatter_reduce", lambda a, i: a.scatter_reduce(0, i.view(4, 1), a[:4, :1], "amax"), x, rows)
    case("index_select", lambda a, i: a.index_select(0, i), x, rows, grad=True)
    case("index_add", lambda a, i: a.index_add(0, i, torch.ones(4, 5, device=a.device)), x, rows, grad=True)
    case("index_fill", lambda a, i: a.index_fill(0, i, 2.0), x, rows)
    case("index_copy", lambda a, i: a.index_copy(0, i[[0, 1, 3]], torch.ones(3, 5, device=a.device)), x, rows)
    case("masked_fill", lambda a: a.masked_fill(a > 0, -1.0), x, grad=True)
    case("masked_select", lambda a: a.masked_select(a > 0), x)
    case("masked_scatter", lambda a, b: a.masked_scatter(a > 0, b), x, numbers(30))
    case("take", lambda a, i: a.take(i), x, rows)
    case("take_along_dim", lambda a: a.take_along_dim(a.argsort(1), 1), x)
    case("nonzero", torch.nonzero, numbers(5, 5, dtype=torch.bool))
    case("nonzero tuple", lambda a: torch.nonzero(a, as_tuple=True), numbers(5, 5, dtype=torch.bool))
    case("argwhere", torch.argwhere, numbers(5, 5, dtype=torch.bool))
    case("sort", lambda a: a.sort(1), x)
    case("sort stable descending", lambda a: torch.sort(a, stable=True, descending=True),
         numbers(30, dtype=torch.int64))
    case("argsort", lambda a: a.argsort(0), x)
    case("topk", lambda a: a.topk(3, 1), x, grad=True)
    case("msort", torch.msort, x)
    case("unique", lambda a: torch.unique(a, return_inverse=True, return_counts=True), numbers(30, dtype=torch.int64))
    case("unique_consecutive", torch.unique_consecutive, numbers(30, dtype=torch.int64))
    case("searchsorted", lambda a, b: torch.searchsorted(a.sort()[0], b), numbers(9), numbers(4))
    case("bucketize", lambda a: torch.bucketize(a, torch.tensor([-1.0, 0, 1], device=a.device)), x)
    case("embedding", lambda w, i: F.embedding(i, w), x, rows, grad=True)
    case("embedding padding", lambda w, i: F.embedding(i, w, padding_idx=2), x, rows, grad=True)
    case("embedding_bag", lambda w, i: F.embedding_bag(i.view(2, 2), w, mode="sum"), x, rows, grad=True)
    case("one_hot", lambda i: F.one_hot(i, 7), rows)
    case("tril triu", lambda a: (a.tril(1), a.triu(-1)), x, grad=True)
    case("diag", torch.diag, numbers(4))
    case("diagonal", lambda a: a.diagonal(), x, grad=True)
    case("diag_embed", torch.diag_embed, numbers(2, 3))
    case("flip roll rot90", lambda a: (a.flip(0), a.roll(2, 1), a.rot90()), x, grad=True)
    case("repeat_interleave", lambda a, i: a.repeat_interleave(2, 0), x, rows)
    case("repeat_interleave tensor", lambda i: torch.repeat_interleave(i), rows)


def shapes():
    x = numbers(2, 3, 4)
    case("cat", lambda a, b: torch.cat([a, b], 1), x, numbers(2, 1, 4), grad=True)
    case("cat types", lambda a, b: torch.cat([a, b]), numbers(3), numbers(3, dtype=torch.int64))
    case("stack", lambda a, b: torch.stack([a, b], 1), numbers(3), numbers(3, seed=2), grad=True)
    case("split chunk", lambda a: (*a.split(2, 2), *a.chunk(2, 0), *a.unbind(1)), x, grad=True)
    case("view permute", lambda a: a.permute(2, 0, 1).reshape(4, 6).contiguous(), x, grad=True)
    case("expand", lambda a: a.unsqueeze(0).expand(5, 2, 3, 4) * 2, x, grad=True)
    case("repeat", lambda a: a.repeat(2, 1, 3), x, grad=True)
    case("tile", lambda a: a.tile(2), x)
    case("pad", lambda a: F.pad(a, (1, 2, 0, 1), value=3.0), x, grad=True)
    case("pad reflect", lambda a: F.pad(a, (1, 1), mode="reflect"), x, grad=True)
    case("pad replicate", lambda a: F.pad(a, (1, 1), mode="replicate"), x, grad=True)
    case("unfold", lambda a: a.unfold(2, 2, 1).sum(-1), x, grad=True)
    case("as_strided", lambda a: torch.as_strided(a, (2, 2), (3, 1), 1) + 1, x)
    case("meshgrid", lambda a, b: torch.meshgrid(a, b, indexing="ij"), numbers(3), numbers(4))
    case("movedim squeeze", lambda a: a.movedim(0, 2).unsqueeze(0).squeeze(), x)
    case("to half and back", lambda a: a.half().float(), x, grad=True)
    case("to double", lambda a: a.double() * 3, x, grad=True)
    case("to int", lambda a: a.to(torch.int32), x)
    case("clone channels last", lambda a: a.contiguous(memory_format=torch.channels_last), numbers(2, 3, 4, 5))
    case("copy_ strided", lambda a, b: a.t().copy_(b), numbers(3, 4), numbers(4, 3))
    case("copy_ broadcast", lambda a, b: a.copy_(b), numbers(3, 4), numbers(4))
    case("copy_ convert", lambda a, b: a.copy_(b), numbers(3, 4), numbers(3, 4, dtype=torch.int64))
    case("empty tensor", lambda a: (a[:0].sum(), a[:0].sum(0), a[:0] + 1, torch.cat([a[:0], a])), numbers(3, 4))
    case("zero size mm", lambda a: a[:0] @ a.t(), numbers(3, 4))


def in_place_and_out():
    x, y = numbers(3, 4), numbers(3, 4, seed=1)
    for name in "add_ sub_ mul_ div_".split():
        case(name, lambda a, b, n=name: getattr(a, n)(b), x, y)
    for name in "exp_ neg_ relu_ sigmoid_ tanh_ zero_ abs_ ceil_".split():
        case(name, lambda a, n=name: getattr(a, n)(), x)
    case("fill_", lambda a: a.fill_(3), x)
    case("fill_ tensor", lambda a: a.fill_(torch.tensor(2.0, device=a.device)), x)
    case("add_ overlapping self", lambda a: a.add_(a), x)
    case("add_ view", lambda a, b: a[1:].add_(b[:2]), x, y)
    case("mul_ transposed view", lambda a: a.t()[1:].mul_(2), x)
    case("shared storage", lambda a: (a[0].add_(a[1]), a), x)
    case("clamp_ lerp_", lambda a, b: a.clamp_(-1, 1).lerp_(b, 0.25), x, y)
    case("add out", lambda a, b: torch.add(a, b, out=torch.empty(3, 4, device=a.device)), x, y)
    case("add out resized", lambda a, b: torch.add(a, b, out=torch.empty(0, device=a.device)), x, y)
    case("mm out resized", lambda a, b: torch.mm(a, b.t(), out=torch.empty(0, device=a.device)), x, y)
    case("add out is input", lambda a, b: torch.add(a, b, out=a), x, y)
    case("sort out", lambda a: torch.sort(a, out=(torch.empty(0, device=a.device),
                                                  torch.empty(0, dtype=torch.int64, device=a.device))), x)
    case("cat out", lambda a, b: torch.cat([a, b], out=torch.empty(0, device=a.device)), x, y)
    case("out larger storage", lambda a: torch.abs(a, out=torch.empty(50, device=a.device)[:12].view(3, 4)), x)
    case("resized view follows", resized_view, x)
    case("squeeze_ transpose_", lambda a: a.unsqueeze_(0).transpose_(1, 2), x)
    case("swap through set_", lambda a, b: a.set_(b).add_(1), x, y)


def resized_view(a):
    out = torch.empty(0, device=a.device)
    before = out.untyped_storage().data_ptr()
    torch.add(a, 1, out=out)
    assert out.untyped_storage().nbytes() >= a.numel() * 4 and before != out.untyped_storage().data_ptr()
    return out


def factories():
    def on(function):
        return lambda a: function(a.device)
    one = numbers(1)
    case("arange", on(lambda d: torch.arange(3, 17, 2, device=d)), one)
    case("arange float", on(lambda d: torch.arange(0, 1, 0.1, device=d)), one)
    case("linspace", on(lambda d: torch.linspace(-1, 2, 7, device=d)), one)
    case("logspace", on(lambda d: torch.logspace(0, 2, 5, device=d)), one)
    case("eye", on(lambda d: torch.eye(3, 5, device=d)), one)
    case("full ones zeros", on(lambda d: (torch.full((2, 3), 7.0, device=d), torch.ones(2, device=d),
                                           torch.zeros(3, dtype=torch.int64, device=d))), one)
    case("tensor", on(lambda d: torch.tensor([[1.0, 2], [3, 4]], device=d)), one)
    case("tril_indices", on(lambda d: torch.tril_indices(4, 3, device=d)), one)
    case("triu_indices", on(lambda d: torch.triu_indices(4, 3, device=d)), one)
    case("hann_window", on(lambda d: torch.hann_window(9, device=d)), one)
    case("complex", lambda a: torch.complex(a, a), numbers(3))
    case("vander", lambda a: torch.vander(a), numbers(4))
    case("zeros_like full_like", lambda a: (torch.zeros_like(a), torch.full_like(a, 2)), numbers(2, 3))


def products():
    x, y = numbers(6, 5), numbers(5, 7)
    case("mm", torch.mm, x, y, grad=True)
    case("mm large", torch.mm, numbers(130, 70), numbers(70, 90), grad=True)
    case("mm transposed", lambda a, b: b.t() @ a.t(), x, y, grad=True)
    case("bmm", torch.bmm, numbers(3, 4, 5), numbers(3, 5, 2), grad=True)
    case("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5), numbers(3, 4, 2), numbers(3, 4, 5),
         numbers(3, 5, 2), grad=True)
    case("addmm", lambda c, a, b: torch.addmm(c, a, b), numbers(7), x, y, grad=True)
    case("mv dot outer", lambda a, b: (torch.mv(a, b), torch.dot(b, b), torch.outer(b, b)), x, numbers(5), grad=True)
    case("matmul broadcast", torch.matmul, numbers(2, 1, 4, 5), numbers(3, 5, 2), grad=True)
    case("einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), numbers(3, 4, 5), numbers(3, 5, 2), grad=True)
    case("linear 2d", F.linear, numbers(3, 5), numbers(7, 5), numbers(7), grad=True)
    case("linear 3d", F.linear, numbers(2, 3, 5), numbers(7, 5), numbers(7), grad=True)
    case("linear no bias", F.linear, numbers(2, 3, 5), numbers(7, 5), grad=True)
    case("bilinear", F.bilinear, numbers(3, 4), numbers(3, 5), numbers(2, 4, 5), grad=True)
    case("bf16 mm", torch.mm, numbers(8, 16, dtype=torch.bfloat16), numbers(16, 8, dtype=torch.bfloat16), grad=True)
    case("int mm", torch.mm, numbers(3, 4, dtype=torch.int64), numbers(4, 2, dtype=torch.int64))
    case("addr", torch.addr, numbers(3, 4), numbers(3), numbers(4))
    case("tensordot kron cross", lambda a, b: (torch.tensordot(a, b, 1), torch.kron(a, b),
                                               torch.cross(a[:3, :3], b[:3, :3], dim=1)), x, y)
    spd = lambda a: a @ a.t() + 5 * torch.eye(5, device=a.device)  # noqa: E731
    case("cholesky", lambda a: torch.linalg.cholesky(spd(a)), numbers(5, 5), grad=True)
    case("solve inv det", lambda a: (torch.linalg.solve(spd(a), a), torch.linalg.inv(spd(a)), torch.linalg.det(spd(a))),
         numbers(5, 5))
    case("qr", torch.linalg.qr, numbers(5, 4))
    case("svd", lambda a: torch.linalg.svd(a, full_matrices=False), numbers(5, 4))
    case("eigh", lambda a: torch.linalg.eigh(spd(a)), numbers(5, 5))
    case("triangular solve", lambda a: torch.linalg.solve_triangular(spd(a), a, upper=False), numbers(5, 5))
    case("lu", lambda a: torch.linalg.lu_factor(spd(a)), numbers(5, 5))
    case("matrix_exp", torch.matrix_exp, numbers(4, 4))
    case("lstsq", lambda a: torch.linalg.lstsq(spd(a), a, driver="gels").solution, numbers(5, 5))
    case("fft", lambda a: torch.view_as_real(torch.fft.fft(a)), numbers(3, 8))
    case("rfft irfft", lambda a: torch.fft.irfft(torch.fft.rfft(a)), numbers(3, 8), grad=True)
    case("stft", lambda a: torch.view_as_real(torch.stft(a, 8, return_complex=True,
                                                         window=torch.hann_window(8, device=a.device))), numbers(40))


def networks():
    image = numbers(2, 4, 9, 9)
    case("conv1d", lambda a, w: F.conv1d(a, w, padding=1), numbers(2, 4, 9), numbers(6, 4, 3), grad=True)
    case("conv2d", F.conv2d, image, numbers(6, 4, 3, 3), numbers(6), grad=True)
    case("conv2d strided dilated", lambda a, w: F.conv2d(a, w, stride=2, padding=1, dilation=2), image,
         numbers(6, 4, 3, 3), grad=True)
    case("conv2d grouped", lambda a, w: F.conv2d(a, w, groups=2), image, numbers(6, 2, 3, 3), grad=True)
    case("conv2d depthwise", lambda a, w: F.conv2d(a, w, groups=4), image, numbers(4, 1, 3, 3), grad=True)
    case("conv2d channels last", lambda a, w: F.conv2d(a.contiguous(memory_format=torch.channels_last), w), image,
         numbers(6, 4, 3, 3), grad=True)
    case("conv3d", F.conv3d, numbers(1, 2, 5, 5, 5), numbers(3, 2, 3, 3, 3), grad=True)
    case("conv_transpose2d", lambda a, w: F.conv_transpose2d(a, w, stride=2), image, numbers(4, 3, 3, 3), grad=True)
    case("max_pool2d", lambda a: F.max_pool2d(a, 2), image, grad=True)
    case("max_pool2d indices", lambda a: F.max_pool2d(a, 2, return_indices=True), image)
    case("avg_pool2d", lambda a: F.avg_pool2d(a, 3, 2), image, grad=True)
    case("adaptive_avg_pool2d", lambda a: F.adaptive_avg_pool2d(a, 3), image, grad=True)
    case("adaptive_avg_pool2d 1", lambda a: F.adaptive_avg_pool2d(a, 1), image, grad=True)
    case("adaptive_max_pool2d", lambda a: F.adaptive_max_pool2d(a, 3), image, grad=True)
    case("avg_pool1d max_pool1d", lambda a: (F.avg_pool1d(a, 2), F.max_pool1d(a, 2)), numbers(2, 4, 9))
    case("batch_norm train", batch_norm(True), image, numbers(4), numbers(4, seed=1), torch.zeros(4), torch.ones(4))
    case("batch_norm eval", batch_norm(False), image, numbers(4), numbers(4, seed=1), torch.zeros(4), torch.ones(4))
    case("batch_norm gradients", lambda a, w, b: F.batch_norm(a, None, None, w, b, training=True), image, numbers(4),
         numbers(4, seed=1), grad=True)
    case("batch_norm 1d", lambda a, w, b: F.batch_norm(a, None, None, w, b, training=True), numbers(8, 4), numbers(4),
         numbers(4, seed=1), grad=True)
    case("layer_norm", lambda a, w, b: F.layer_norm(a, (6,), w, b), numbers(4, 6), numbers(6), numbers(6, seed=1),
         grad=True)
    case("layer_norm bf16", lambda a: F.layer_norm(a, (6,)), numbers(4, 6, dtype=torch.bfloat16))
    case("group_norm", lambda a, w, b: F.group_norm(a, 2, w, b), image, numbers(4), numbers(4, seed=1), grad=True)
    case("instance_norm", F.instance_norm, image)
    case("local_response_norm", lambda a: F.local_response_norm(a, 2), image)
    case("normalize", lambda a: F.normalize(a, dim=1), image, grad=True)
    case("interpolate nearest", lambda a: F.interpolate(a, scale_factor=2), image, grad=True)
    case("interpolate bilinear", lambda a: F.interpolate(a, size=(5, 7), mode="bilinear"), image, grad=True)
    case("interpolate bicubic", lambda a: F.interpolate(a, size=(5, 7), mode="bicubic"), image)
    case("grid_sample", lambda a, g: F.grid_sample(a, g, align_corners=False), image, numbers(2, 3, 3, 2), grad=True)
    case("grid_sample cudnn", lambda a, g: F.grid_sample(a, g, align_corners=True), image, numbers(2, 3, 3, 2),
         grad=True)
    case("pixel_shuffle", lambda a: F.pixel_shuffle(a, 2), image)
    case("fold unfold", lambda a: F.fold(F.unfold(a, 3), (9, 9), 3), image, grad=True)
    case("softmax", lambda a: F.softmax(a, -1), numbers(4, 6), grad=True)
    case("softmax half to float", lambda a: F.softmax(a, -1, dtype=torch.float32), numbers(4, 6, dtype=torch.float16))
    case("log_softmax", lambda a: F.log_softmax(a, -1), numbers(4, 6), grad=True)
    case("cross_entropy", lambda a, t: F.cross_entropy(a, t), numbers(4, 7), numbers(4, dtype=torch.int64), grad=True)
    case("cross_entropy options", lambda a, t, w: F.cross_entropy(a, t, w, ignore_index=1, label_smoothing=0.1),
         numbers(6, 7), numbers(6, dtype=torch.int64), positive(7))
    case("cross_entropy 2d", lambda a, t: F.cross_entropy(a, t), numbers(2, 7, 3, 3),
         numbers(2, 3, 3, dtype=torch.int64), grad=True)
    case("nll mse l1 huber",
         lambda a, b: (F.mse_loss(a, b), F.l1_loss(a, b), F.smooth_l1_loss(a, b), F.huber_loss(a, b)),
         numbers(4, 6), numbers(4, 6, seed=1), grad=True)
    case("bce", lambda a, b: (F.binary_cross_entropy(a.sigmoid(), b), F.binary_cross_entropy_with_logits(a, b)),
         numbers(4, 6), numbers(4, 6, seed=1, low=0, high=1), grad=True)
    case("kl_div", lambda a, b: F.kl_div(a, b, reduction="batchmean"), numbers(4, 6), positive(4, 6))
    case("cosine margin triplet",
         lambda a, b: (F.cosine_similarity(a, b), F.triplet_margin_loss(a, b, -b)), numbers(4, 6),
         numbers(4, 6, seed=1))
    case("multi_margin", lambda a, t: F.multi_margin_loss(a, t), numbers(4, 7), numbers(4, dtype=torch.int64))


def batch_norm(training):
    return lambda a, w, b, mean, var: F.batch_norm(a, mean, var, w, b, training=training)


def attention():
    q, k, v = (numbers(2, 3, 8, 16, seed=s) for s in range(3))
    sdpa = F.scaled_dot_product_attention
    case("sdpa", sdpa, q, k, v, grad=True)
    case("sdpa causal", lambda a, b, c: sdpa(a, b, c, is_causal=True), q, k, v, grad=True)
    case("sdpa float mask", lambda a, b, c, m: sdpa(a, b, c, attn_mask=m.detach()), q, k, v, numbers(2, 1, 8, 8),
         grad=True)
    case("sdpa bool mask", lambda a, b, c: sdpa(a, b, c, attn_mask=torch.ones(8, 8, dtype=torch.bool, device=a.device)
                                                .tril()), q, k, v, grad=True)
    case("sdpa scale", lambda a, b, c: sdpa(a, b, c, scale=0.5), q, k, v, grad=True)
    case("sdpa lengths", sdpa, numbers(2, 3, 5, 16), numbers(2, 3, 9, 16), numbers(2, 3, 9, 16, seed=1), grad=True)
    half = [t.bfloat16() for t in (q, k, v)]
    case("sdpa bf16", lambda a, b, c: sdpa(a, b, c, is_causal=True), *half, grad=True)
    case("multi head attention", attention_module, numbers(5, 2, 16), numbers(48, 16), numbers(16, 16))


def attention_module(x, in_weight, out_weight):
    return F.multi_head_attention_forward(x, x, x, 16, 4, in_weight, None, None, None, False, 0.0, out_weight, None,
                                          need_weights=False)[0]


def lists():
    def many(function):
        return lambda *t: function(list(t))
    x = [numbers(n, 3, seed=n) for n in (1, 2, 5)]
    for name in "abs exp neg sqrt reciprocal sign zero".split():
        if name != "zero":
            case("_foreach_" + name, many(getattr(torch, "_foreach_" + name)), *[t.abs() + 0.5 for t in x])
        case(f"_foreach_{name}_", many(getattr(torch, f"_foreach_{name}_")), *[t.abs() + 0.5 for t in x])
    case("_foreach_add scalar", many(lambda t: torch._foreach_add(t, 2.0)), *x)
    case("_foreach_add list", many(lambda t: torch._foreach_add(t, t, alpha=0.5)), *x)
    case("_foreach_mul_ scalars", many(lambda t: torch._foreach_mul_(t, [1.0, 2.0, 3.0])), *x)
    case("_foreach_mul_ tensor", many(lambda t: torch._foreach_mul_(t, torch.tensor(0.5, device=t[0].device))), *x)
    case("_foreach_addcmul_", many(lambda t: torch._foreach_addcmul_(t, t, t, 0.5)), *x)
    case("_foreach_addcdiv_", many(lambda t: torch._foreach_addcdiv_(t, t, [a.abs() + 1 for a in t], 0.5)), *x)
    case("_foreach_lerp_", many(lambda t: torch._foreach_lerp_(t, [a * 2 for a in t], 0.25)), *x)
    case("_foreach_norm", many(lambda t: torch._foreach_norm(t, 2)), *x)
    case("_foreach_copy_", many(lambda t: torch._foreach_copy_([torch.empty_like(a) for a in t], t)), *x)
    case("_foreach_pow clamp", many(lambda t: (*torch._foreach_pow(t, 2), *torch._foreach_clamp_min(t, 0.0))), *x)
    case("_foreach 40 tensors", many(lambda t: torch._foreach_add(t, 1.0)), *[numbers(n + 1) for n in range(40)])
    case("amp unscale", amp_unscale, numbers(3), numbers(4))
    case("amp update scale", lambda s, g, i: torch._amp_update_scale_(s, g, i, 2.0, 0.5, 2), torch.tensor(8.0),
         torch.tensor(1, dtype=torch.int32), torch.tensor(0.0))
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "Adamax"):
        for mode in ({"foreach": True}, {"foreach": False}, {"fused": True}):
            if "fused" in mode and name not in ("SGD", "Adam", "AdamW"):
                continue
            case(f"optim.{name} {mode}", optimizer(name, mode), numbers(3, 4), numbers(5))
    case("clip_grad_norm", clipped, numbers(3, 4), numbers(5))


def amp_unscale(a, b):
    b[0] = float("inf")
    found = torch.zeros(1, device=a.device)
    torch._amp_foreach_non_finite_check_and_unscale_([a, b], found, torch.tensor(0.5, device=a.device))
    return found


def optimizer(name, mode):
    def run(a, b):
        parameters = [a.clone().requires_grad_(), b.clone().requires_grad_()]
        made = getattr(torch.optim, name)(parameters, lr=0.1, **mode)
        for _ in range(3):
            made.zero_grad()
            sum((p * p).sum() for p in parameters).backward()
            made.step()
        return [p.detach() for p in parameters]
    return run


def clipped(a, b):
    parameters = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    sum((p ** 3).sum() for p in parameters).backward()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 0.1)
    return [norm, *(p.grad for p in parameters)]


def flatten(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flatten(v)]
    return []


def run(function, tensors, device, grad):
    placed = [t.clone().to(device) for t in tensors]
    if grad:
        placed = [t.requires_grad_(t.is_floating_point()) for t in placed]
    results = flatten(function(*placed))
    gradients = []
    if grad:
        differentiable = [r for r in results if r.requires_grad]
        weights = [numbers(*r.shape, seed=9).to(r.dtype).to(device) for r in differentiable]
        inputs = [t for t in placed if t.requires_grad]
        gradients = torch.autograd.grad(differentiable, inputs, weights, allow_unused=True)
    wrong = [r.device for r in results if r.device.type != device and device == "cuda" and r.dim() > 0]
    assert not wrong, f"results on {wrong}"
    return [t.detach().cpu() for t in (*results, *placed, *(g for g in gradients if g is not None))]


def same_bits(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if a.dtype.is_floating_point:
        return bool(((a == b) | (a.isnan() & b.isnan())).all())
    return torch.equal(a, b)


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    for group in (elementwise, reductions, indexing, shapes, in_place_and_out, factories, products, networks, attention,
                  lists):
        group()
    chosen = [c for c in CASES if only in c[0]]
    differences = 0
    for name, function, tensors, grad in chosen:
        try:
            expected = run(function, tensors, "cpu", grad)
            got = run(function, tensors, "cuda", grad)
            same = len(expected) == len(got) and all(map(same_bits, expected, got))
            message = f"cpu {expected} cuda {got}" if only else "other values"
        except Exception as error:
            same, message = False, f"{type(error).__name__}: {str(error).splitlines()[0]}"
            if only:
                traceback.print_exc()
        if not same:
            differences += 1
            print(f"{name}: {message}")
    print(f"operators {len(chosen)} differences {differences}")
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
    print("left", torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
