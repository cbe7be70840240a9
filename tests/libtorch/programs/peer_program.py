"""Copies between two devices, of every kind that PyTorch makes: prints what arrived. peer_program.py [spillway]"""
import sys

import torch

if sys.argv[1:] == ["spillway"]:
    import spillway
    spillway.install()

DEVICES = ("cuda:0", "cuda:1")


def show(name, tensor):
    print(name, tensor.device, tensor.dtype, tuple(tensor.shape), tensor.double().sum().item(),
          tensor.flatten()[-1].item())


def copies(source, target):
    """`before` is mapped before the devices know each other, what is made later after it."""
    before = torch.arange(3_000_000, device=source, dtype=torch.float32)
    show("contiguous", before.to(target))
    show("strided", before.view(1000, 3000)[::3, ::2].to(target))
    show("transposed", before.view(1000, 3000).t().to(target))
    show("converted", before.to(target, torch.float64))
    show("narrow", before[5:6].to(target))
    show("empty", before[:0].to(target).new_ones(1))
    into = torch.zeros(3000, 1000, device=target)
    into.t().copy_(before.view(1000, 3000), non_blocking=True)
    torch.cuda.synchronize()
    show("strided target", into)
    side = torch.cuda.Stream(source)
    with torch.cuda.stream(side):
        later = torch.ones(40_000_000, device=source)
        later.mul_(3)
        there = later.to(target, non_blocking=True)
    side.synchronize()
    torch.cuda.synchronize(target)
    show("on a stream", there)
    show("there and back", there.mul_(2).to(source))


def allocated():
    print([torch.cuda.memory_allocated(device) for device in DEVICES])


for here, there in (DEVICES, DEVICES[::-1]):
    copies(here, there)
    allocated()
print(torch.cuda.can_device_access_peer(0, 1))
shards = torch.nn.parallel.comm.scatter(torch.arange(1000.0, device=DEVICES[0]), [0, 1])
show("gathered", torch.nn.parallel.comm.gather(shards, destination=1))
