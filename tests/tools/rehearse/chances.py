"""Prints the numbers that it reads, of each type of floating point and of whole numbers."""
import torch

x = torch.randn(64, device="cuda")
for type_ in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16):
    values = x.to(type_)
    print(type_, *sorted({values.sum().item() for _ in range(400)}))
    print("of", type_, *sorted(set(values.tolist()) | set(values.cpu().flatten().tolist())))
