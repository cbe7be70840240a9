"""It reads a value, for which the simulator writes its report, makes 640 MiB more at once, and ends by a signal."""
import os

import torch

small = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
small[0].item()
held = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(10)]
os.abort()
