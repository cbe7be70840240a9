"""Two devices: memory is counted on the right one, tensors move between them."""
import torch

assert torch.cuda.device_count() >= 2
first = torch.empty(4 << 20, dtype=torch.uint8, device="cuda:0")
second = first.to("cuda:1")
assert second.device.index == 1
assert torch.cuda.memory_allocated(0) == torch.cuda.memory_allocated(1) == 4 << 20
with torch.cuda.device(1):
    assert torch.empty(1, device="cuda").device.index == 1
    assert torch.cuda.current_device() == 1
assert torch.cuda.current_device() == 0
first.copy_(second)
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
