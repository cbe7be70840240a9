"""Trains a layer behind a frozen one: 7 MiB of parameters and buffers, 2 MiB of gradients, 4 MiB of Adam's state."""
import torch

frozen = torch.nn.Linear(1024, 1024, bias=False, device="cuda").requires_grad_(False)
frozen.register_buffer("table", torch.zeros(256, 1024, device="cuda"))
layer = torch.nn.Linear(1024, 512, bias=False, device="cuda")
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(2):
    optimizer.zero_grad(set_to_none=False)
    layer(frozen(torch.ones(8192, 1024, device="cuda"))).sum().backward()
    optimizer.step()
