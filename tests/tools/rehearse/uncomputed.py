"""With true values: what the CPU computes, and with an argument an operator whose CUDA kernel nobody stands in for."""
import sys

import torch

x = torch.arange(8, dtype=torch.float32, device="cuda") + 1
if len(sys.argv) > 1:
    torch.nested.to_padded_tensor(torch.nested.nested_tensor([x, x[:3]]), 0.0)
print(x.sum().item())
