"""A program that would fit on the card, were it alone there."""
import torch

weights = torch.zeros(60 << 20, dtype=torch.uint8, device="cuda")
activations = torch.zeros(80 << 20, dtype=torch.uint8, device="cuda")
