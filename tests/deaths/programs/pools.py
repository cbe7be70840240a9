"""Memory that was allocated in a pool of the program's own stays there, whatever is free in it."""
import torch

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    warm_up = [torch.empty(48 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
    del warm_up
activations = torch.empty(150 << 20, dtype=torch.uint8, device="cuda")
