"""holding.py GIB COMMAND...: PyTorch caches so many GiB while COMMAND runs."""
import subprocess
import sys
import time

import torch

kept = torch.ones(1 << 20, device="cuda")
blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(sys.argv[1]))]
del blocks
time.sleep(1.5)  # what the process shows of itself is at most a quarter of a second old
sys.exit(subprocess.run(sys.argv[2:], check=False).returncode)
