"""Copies bytes to the host in one way, and decides the size of memory by them where they are few.

    copies.py tolist | cpu | numpy | pinned | driver | graph | bulk | killed
"""
import ctypes
import os
import signal
import sys

import torch

x = torch.randint(4, (4,), device="cuda")
pinned = torch.zeros(4, dtype=torch.long, pin_memory=True)
how = sys.argv[1]
if how == "tolist":
    torch.empty(x.tolist()[0] + 5)
elif how == "cpu":
    torch.empty(int(x.max().cpu()) + 5)
elif how == "numpy":
    torch.empty(int(x.cpu().numpy()[0]) + 5)
elif how == "pinned":
    pinned.copy_(x, non_blocking=True)
    torch.cuda.synchronize()
elif how == "driver":
    host = (ctypes.c_char * 32)()
    assert ctypes.CDLL("libcudart.so.13").cudaMemcpy(host, ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(32), 2) == 0
elif how == "graph":
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pinned.copy_(x, non_blocking=True)
    for _ in range(3):
        graph.replay()
elif how == "bulk":
    torch.rand(2 << 18, device="cuda").cpu()
elif how == "killed":
    pinned.copy_(x)
    os.kill(os.getpid(), signal.SIGKILL)
