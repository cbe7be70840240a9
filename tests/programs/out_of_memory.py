"""Runs out of memory on purpose, prints PyTorch's message and goes on. Needs a card of at most 4 GiB."""
import torch

held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
try:
    torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    message = str(error)
else:
    raise SystemExit("8 GiB fitted on the card")

print(message)
for part in ["CUDA out of memory. Tried to allocate 8.00 GiB.", "GPU 0 has a total capacity of",
             "1024.00 MiB is allocated by PyTorch",
             "reserved by PyTorch but unallocated"]:
    assert part in message, part
assert torch.cuda.memory_stats()["num_ooms"] == 1

del held
torch.cuda.empty_cache()
again = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_allocated() == 1 << 30
