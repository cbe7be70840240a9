"""Its files may have 256 kB each: as on a disk that becomes full, writes beyond fail."""
import resource

import torch

resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, 256 << 10))
for _ in range(20000):
    torch.empty(1000, device="cuda")
