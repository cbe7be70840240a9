"""A program that gave itself a part of the card, and forgot it."""
import torch

torch.cuda.set_per_process_memory_fraction(0.25)
activations = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
