"""PyTorch's record of allocations: events, and a snapshot whose blocks tile their segments."""
import torch

torch.cuda.memory._record_memory_history(max_entries=1000)
held = [torch.empty(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
del held[1]
snapshot = torch.cuda.memory._snapshot()
torch.cuda.memory._record_memory_history(enabled=None)

actions = [entry["action"] for entry in snapshot["device_traces"][0]]
assert actions.count("alloc") == 3 and actions.count("free_completed") == 1, actions
for segment in snapshot["segments"]:
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
assert sum(segment["allocated_size"] for segment in snapshot["segments"]) == torch.cuda.memory_allocated()
