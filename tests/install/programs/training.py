"""A small training loop that knows nothing of Spillway: training.py [--install], which does call it."""
import sys

import torch

if "--install" in sys.argv:
    import spillway
    spillway.install()
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(64, 256, device="cuda")).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
print("trained")
with open("/proc/self/maps") as maps:
    for path in sorted({line.split(maxsplit=5)[5].strip() for line in maps if "libspillway" in line}):
        print(path)
