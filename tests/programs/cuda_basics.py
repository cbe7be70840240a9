"""Device properties, allocation and memory statistics of the first CUDA device."""
import torch

assert torch.cuda.is_available()
assert torch.cuda.device_count() >= 1
properties = torch.cuda.get_device_properties(0)
assert properties.total_memory > 0 and properties.multi_processor_count > 0
assert torch.cuda.get_device_capability(0) == (properties.major, properties.minor)

free, total = torch.cuda.mem_get_info()
assert total == properties.total_memory and 0 < free <= total

tensor = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_allocated() == 64 << 20
assert torch.cuda.memory_reserved() == 64 << 20
assert free - torch.cuda.mem_get_info()[0] == 64 << 20
assert "Allocated memory" in torch.cuda.memory_summary()

del tensor
assert torch.cuda.memory_allocated() == 0
assert torch.cuda.memory_reserved() == 64 << 20
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0
assert torch.cuda.mem_get_info()[0] == free
assert torch.cuda.max_memory_allocated() == 64 << 20

# What a device reads back is defined bytes of the right shape.
assert (torch.ones(4, 5, device="cuda") + 1).cpu().shape == (4, 5)
print(f"{properties.name}: {total >> 20} MiB")
