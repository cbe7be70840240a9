"""Holds 30 tensors of 64 MiB in a process that may take only a part of its card."""
import sys

import torch

torch.cuda.set_per_process_memory_fraction(float(sys.argv[1]))
held = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(30)]
