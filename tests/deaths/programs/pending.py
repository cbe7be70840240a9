"""A step that is captured as a graph, and hands its batches to a second stream: what is freed while it is captured
cannot be used again until the capture ends."""
import torch

side = torch.cuda.Stream()
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(20):
        batch = torch.empty(24 << 20, dtype=torch.uint8, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            batch += 1
        batch.record_stream(side)
        del batch
    torch.cuda.current_stream().wait_stream(side)
