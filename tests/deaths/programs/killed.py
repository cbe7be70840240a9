"""A training that is killed from outside while the card is nearly full, after one failure that it survived."""
import os
import signal

import torch

weights = [torch.empty(20 << 20, dtype=torch.uint8, device="cuda") for _ in range(10)]
try:
    torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("goes on with a smaller batch")
weights.append(torch.empty(30 << 20, dtype=torch.uint8, device="cuda"))
os.kill(os.getpid(), signal.SIGKILL)
