#!/usr/bin/env python3
"""launches.py COUNT: launches COUNT kernels by operators and COUNT graphs, and prints as JSON how many of each CUPTI
saw launched."""
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile


def main():
    count = int(sys.argv[1])
    numbers = torch.zeros(1 << 12, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        numbers.add_(1)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(count):
            numbers.mul_(1)
            graph.replay()
        torch.cuda.synchronize()
    calls = {event.key: event.count for event in seen.key_averages()}
    print(json.dumps({"kernels": sum(calls.get(name, 0) for name in ("cudaLaunchKernel", "cudaLaunchKernelExC",
                                                                     "cuLaunchKernel", "cuLaunchKernelEx")),
                      "graphs": calls.get("cudaGraphLaunch", 0)}))


if __name__ == "__main__":
    main()
