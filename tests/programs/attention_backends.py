"""Scaled-dot-product attention with each of PyTorch's backends, by default and forced, forward and backward.

Checks which backend the card's compute capability leads to, shapes, gradients, and that the peak of the fused backends
does not hold the matrix of scores."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

device = "cuda"
major, minor = torch.cuda.get_device_capability()
CUDNN, FLASH = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION
EFFICIENT, MATH = SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH


def peak_of(backend, dtype, query_length=2048, key_length=2048, heads=8, key_heads=8, width=64, layout="bhsd",
            **options):
    """Bytes above the inputs at the peak of a forward and a backward pass."""
    def random(length, count):
        if layout == "bshd":
            return torch.randn(2, length, count, width, device=device, dtype=dtype).transpose(1, 2).requires_grad_()
        return torch.randn(2, count, length, width, device=device, dtype=dtype, requires_grad=True)

    query, key, value = random(query_length, heads), random(key_length, key_heads), random(key_length, key_heads)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with sdpa_kernel(backend):
        result = attention(query, key, value, enable_gqa=heads != key_heads, **options)
    assert result.shape == query.shape and result.dtype == dtype
    result.backward(torch.ones_like(result))
    for tensor in (query, key, value):
        assert tensor.grad.shape == tensor.shape
    with torch.no_grad(), sdpa_kernel(backend):
        attention(query, key, value, enable_gqa=heads != key_heads, **options)
    return torch.cuda.max_memory_allocated() - before


def is_refused(backend, dtype, **options):
    try:
        peak_of(backend, dtype, **options)
    except RuntimeError as error:
        assert "No available kernel" in str(error), error
        return True
    return False


# The scores of 2 x 8 heads of 2048 x 2048, in two bytes each.
scores = 2 * 8 * 2048 * 2048 * 2
half = torch.float16 if major < 8 else torch.bfloat16
assert peak_of(MATH, half, is_causal=True) > scores
assert peak_of(EFFICIENT, half, is_causal=True) < scores
assert peak_of(EFFICIENT, torch.float32) < 2 * scores
if major < 8:
    assert is_refused(CUDNN, half) and is_refused(FLASH, half)
else:
    # PyTorch 2.15 gives cuDNN only dropouts that are multiples of 1/16.
    for backend in (FLASH, CUDNN):
        for options in ({}, {"is_causal": True}, {"dropout_p": 0.125}, {"query_length": 1024}, {"layout": "bshd"},
                        {"width": 128}):
            assert peak_of(backend, half, **options) < scores, (backend, options)
        assert is_refused(backend, torch.float32)
    peak_of(FLASH, half, key_heads=2)
    peak_of(CUDNN, half, key_heads=2)
    mask = torch.zeros(1, 1, 2048, 2048, device=device, dtype=half)
    peak_of(CUDNN, half, attn_mask=mask)
    assert is_refused(FLASH, half, attn_mask=mask)

chosen = torch._fused_sdp_choice(*[torch.randn(2, 8, 512, 64, device=device, dtype=half)] * 3)
print(f"attention: capability {major}.{minor} chooses {SDPBackend(chosen)}")
# PyTorch prefers cuDNN from its version 9.15 on.
expected = CUDNN if major in (9, 10) and torch.backends.cudnn.version() >= 91500 else FLASH if major >= 8 else EFFICIENT
assert SDPBackend(chosen) == expected, SDPBackend(chosen)
for needs_gradient in (True, False):
    inputs = [torch.randn(2, 8, 512, 64, device=device, dtype=half, requires_grad=needs_gradient) for _ in range(3)]
    result = attention(*inputs, is_causal=True)
    if needs_gradient:
        result.sum().backward()
torch.cuda.synchronize()
