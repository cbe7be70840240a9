"""Keeps each step's loss with its graph, and so the activations of all steps."""
import torch

weight = torch.randn(1024, 1024, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
losses = []
for _ in range(60):
    hidden = torch.randn(512, 1024, device="cuda")
    for _ in range(6):
        hidden = (hidden @ weight).relu()
    loss = hidden.mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    losses.append(loss)
