"""A training that adds up its losses, and so keeps the graph of every step: leak.py, or leak.py --mended."""
import os
import sys
import time

import torch
from torch import nn

PAUSE = float(os.environ.get("SECONDS_A_STEP", 0))  # what the program waits for its data

network = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.AdamW(network.parameters())
total = 0
for _ in range(100):
    images = torch.randn(1024, 512, device="cuda")
    time.sleep(PAUSE)
    loss = (network(images) - images).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    total += loss.item() if "--mended" in sys.argv else loss
