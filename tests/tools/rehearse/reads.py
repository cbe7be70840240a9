"""Reads values from the device in each of the ways that a program can."""
import torch

x = torch.rand(64, device="cuda")  # what the host wrote, or what follows from it, would be known
for _ in range(3):
    x.sum().item()  # three numbers
if x.max() > 0:  # one value
    pass
if x[0]:  # one value
    pass
x.nonzero()  # a shape
x[x > 0]  # a shape
torch.unique(x)  # shapes
x.cpu()  # bytes that the host holds
