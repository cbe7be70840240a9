"""A model whose weights, gradients and optimizer states are more than the card has."""
import torch
from torch import nn

network = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(5)]).cuda()
optimizer = torch.optim.AdamW(network.parameters())
for _ in range(5):
    network(torch.randn(64, 4096, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
