"""A data loader that pins more host memory than its job may have, and is told "CUDA out of memory"."""
import resource

import torch

torch.zeros(1, device="cuda")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))
batches = [torch.empty(200 << 20, dtype=torch.uint8, pin_memory=True) for _ in range(100)]
