"""Holds memory while the probe names its stacks, and says at its very end whether anybody has imported Inductor."""
import atexit
import sys
import time

import torch

atexit.register(lambda: print("torch._inductor imported:", "torch._inductor" in sys.modules))
held = torch.ones(1 << 20, device="cuda")
end = time.monotonic() + 2.5  # the probe looks once a second
while time.monotonic() < end:
    time.sleep(0.01)
