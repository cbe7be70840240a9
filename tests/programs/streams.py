"""Streams, events, record_stream and pinned memory."""
import torch
from torch.utils.data import DataLoader, TensorDataset

side = torch.cuda.Stream()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
tensor = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
address = tensor.data_ptr()
start.record()
with torch.cuda.stream(side):
    side.wait_stream(torch.cuda.default_stream())
    tensor.add_(1)
    end.record()
tensor.record_stream(side)
del tensor
torch.cuda.synchronize()
assert end.query() and start.elapsed_time(end) >= 0
torch.empty(1, device="cuda")
assert torch.empty(8 << 20, dtype=torch.uint8, device="cuda").data_ptr() == address

pinned = torch.arange(1000).pin_memory()
assert pinned.is_pinned() and not torch.arange(1000).is_pinned()
copied = pinned.to("cuda", non_blocking=True)
torch.cuda.current_stream().synchronize()
assert copied.shape == pinned.shape

data = TensorDataset(torch.arange(64).view(16, 4))
for workers in (0, 2):
    batches = list(DataLoader(data, batch_size=4, num_workers=workers, pin_memory=True))
    assert len(batches) == 4 and all(batch[0].is_pinned() for batch in batches)
    assert torch.equal(torch.cat([batch[0] for batch in batches]), torch.arange(64).view(16, 4))
    assert all(batch[0].to("cuda", non_blocking=True).is_cuda for batch in batches)
