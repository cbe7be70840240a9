"""Operators with kernels of every kind: attention, sorting, scans, fused optimizers, results whose shape is data."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

device = "cuda"
torch.backends.cudnn.enabled = False  # a stock program may choose PyTorch's own convolutions


def attention(backend):
    query = torch.randn(2, 4, 128, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    with sdpa_kernel(backend):
        result = torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    result.sum().backward()
    assert query.grad.shape == query.shape


def optimizer_step(**options):
    layer = torch.nn.Linear(64, 64, device=device)
    optimizer = torch.optim.AdamW(layer.parameters(), **options)
    layer(torch.ones(8, 64, device=device)).sum().backward()
    optimizer.step()


for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
    attention(backend)
for options in ({"foreach": True}, {"fused": True}, {"foreach": False}):
    optimizer_step(**options)

hundred = torch.rand(100, device=device)
assert torch.sort(hundred).values.shape == (100,)
assert torch.topk(hundred, 3).indices.shape == (3,)
assert torch.cumsum(hundred, 0).shape == (100,)
assert torch.multinomial(hundred + 1, 3).shape == (3,)
assert torch.nonzero(hundred).dim() == 2
assert torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8, device=device), torch.ones(4, 3, 3, 3, device=device)).shape \
    == (1, 4, 6, 6)
torch.nn.Embedding(100, 8, device=device)(torch.zeros(4, dtype=torch.long, device=device)).sum().backward()
torch.cuda.synchronize()
