"""Programs that run out of memory in one way each, under PyTorch's memory history: deaths_program.py WAY SNAPSHOT.

Prints what PyTorch itself counted at the moment of the failure, as its observer of refused requests sees it.
"""
import ctypes
import json
import os
import sys

import torch
from torch import nn

MIB = 1 << 20


def new(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def train(keep, batch_of=lambda step: 1024, steps=1000):
    network = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
    optimizer = torch.optim.AdamW(network.parameters())
    kept = []
    for step in range(steps):
        images = torch.randn(batch_of(step), 512, device="cuda")
        loss = (network(images) - images) ** 2
        if keep:
            kept.append(loss)  # the mistake: with its graph
        loss.mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def leak():
    train(keep=True)


def one_large_batch():
    train(keep=False, batch_of=lambda step: 262144 if step == 4 else 1024)


def fragmentation():
    whole = [new(100) for _ in range(8)]
    whole.clear()
    parts = [new(55) for _ in range(8)]  # the 45 beside each are too small for another
    new(250)
    parts.clear()


def pools():
    the_pool.append(torch.cuda.MemPool())  # PyTorch 2.11 writes no pool of a segment that has gone
    with torch.cuda.use_mem_pool(the_pool[0]):
        kept = [new(200) for _ in range(3)]
        kept.clear()
    new(500)


def limit():
    torch.cuda.set_per_process_memory_fraction(0.25)
    new(400)


def outside():
    taken = ctypes.c_void_p()
    torch.zeros(1, device="cuda")
    assert ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(taken), ctypes.c_size_t(700 * MIB)) == 0
    new(400)


def growing_cache():
    keys = torch.zeros(0, 1 * MIB, dtype=torch.uint8, device="cuda")
    for _ in range(1000):
        keys = torch.cat([keys, torch.zeros(8, 1 * MIB, dtype=torch.uint8, device="cuda")])


def note(device, asked, capacity, free):
    stats = torch.cuda.memory_stats()
    truth.update(device=device, asked_bytes=asked, capacity_bytes=capacity, free_bytes=free,
                 in_use_bytes=stats["requested_bytes.all.current"],
                 rounded_bytes=stats["allocated_bytes.all.current"], reserved_bytes=stats["reserved_bytes.all.current"],
                 active_bytes=stats["active_bytes.all.current"])


truth, the_pool = {}, []
torch.cuda.memory._record_memory_history(stacks=os.environ.get("DEATHS_STACKS", "python"))
torch._C._cuda_attach_out_of_memory_observer(note)
try:
    globals()[sys.argv[1]]()
except torch.OutOfMemoryError:
    pass
torch.cuda.memory._dump_snapshot(sys.argv[2])
print(json.dumps(truth))
