"""holding.py GIB COMMAND...: PyTorch caches so many GiB while COMMAND runs."""
import subprocess
import sys

import torch

from shown import wait_until_cached

kept = torch.ones(1 << 20, device="cuda")
blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(sys.argv[1]))]
del blocks
wait_until_cached(int(sys.argv[1]) << 30)
sys.exit(subprocess.run(sys.argv[2:], check=False).returncode)
