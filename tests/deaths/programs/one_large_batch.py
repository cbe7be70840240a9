"""A training in which one batch, with the longest text of all, is many times as large as the others."""
import torch
from torch import nn

network = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.AdamW(network.parameters())
for step in range(10):
    rows = 32768 if step == 6 else 1024
    images = torch.randn(rows, 512, device="cuda")
    (network(images) - images).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
