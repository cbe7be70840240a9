#!/usr/bin/env python3
"""Writes a memory snapshot in PyTorch's format: make_snapshot.py EVENTS OUT.

The program that it pretends is a training run of a transformer of 32 layers on a card of 80 GiB: parameters, the state
of Adam, activations that the forward pass makes and the backward pass frees, temporaries, and a metric that keeps what
it should not. It runs out of memory at the end. The same EVENTS give the same file.
"""
import bisect
import pickle
import random
import sys

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CARD = 80 * GIB - 600 * MIB  # the rest is the CUDA context
LAYERS = 32
ACTIVATIONS = (("norm", 33 * MIB), ("qkv", 100 * MIB), ("mask", 70 * KIB), ("scores", 66 * MIB), ("out", 33 * MIB),
               ("norm", 33 * MIB), ("gate", 88 * MIB), ("up", 88 * MIB), ("silu", 88 * MIB))


class Allocator:
    """PyTorch's in short: small and large blocks, best fit, split, joined when freed. Its history is `events`."""

    def __init__(self):
        self.segments, self.events, self.live = [], [], {}
        self.free = {"small": [], "large": []}  # (size, address), sorted
        self.sizes, self.at_end = {}, {}  # of free pieces: address → size, end → address
        self.pool_of = {}
        self.next, self.time, self.reserved = 0x7F0000000000, 1_700_000_000_000_000, 0

    def note(self, action, address, size, frames):
        self.time += random.randrange(2, 60)
        key = "device_free" if action == "oom" else "addr"
        self.events.append({"action": action, key: address, "size": size, "stream": 0, "time_us": self.time,
                            "frames": frames})

    def put(self, pool, address, size):
        bisect.insort(self.free[pool], (size, address))
        self.sizes[address], self.at_end[address + size] = size, address

    def take(self, pool, address):
        size = self.sizes.pop(address)
        del self.at_end[address + size]
        del self.free[pool][bisect.bisect_left(self.free[pool], (size, address))]
        return size

    def grow(self, pool, size, frames):
        large = 20 * MIB if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        wanted = 2 * MIB if pool == "small" else large
        if self.reserved + wanted > CARD:
            return False
        self.segments.append([self.next, wanted, pool])
        self.note("segment_alloc", self.next, wanted, frames)
        self.put(pool, self.next, wanted)
        self.next += wanted + 2 * MIB  # so that segments do not touch
        self.reserved += wanted
        return True

    def allocate(self, size, frames):
        rounded = (size + 511) // 512 * 512
        pool = "small" if rounded <= MIB else "large"
        at = bisect.bisect_left(self.free[pool], (rounded, 0))
        if at == len(self.free[pool]):
            if not self.grow(pool, rounded, frames):
                self.note("oom", CARD - self.reserved, size, frames)
                raise MemoryError
            at = bisect.bisect_left(self.free[pool], (rounded, 0))
        whole, address = self.free[pool][at]
        self.take(pool, address)
        rest = whole - rounded
        if rest >= (512 if pool == "small" else MIB):
            self.put(pool, address + rounded, rest)
        else:
            rounded = whole
        self.live[address] = (size, rounded, pool, frames)
        self.note("alloc", address, size, frames)
        return address

    def release(self, address):
        size, rounded, pool, frames = self.live.pop(address)
        self.note("free_requested", address, size, frames)
        self.note("free_completed", address, size, frames)
        start, end = address, address + rounded
        if start in self.at_end:
            start = self.at_end[start]
            self.take(pool, start)
        if end in self.sizes:
            end += self.take(pool, end)
        self.put(pool, start, end - start)

    def snapshot(self):
        starts = sorted(list(self.live) + list(self.sizes))
        segments = []
        for address, size, pool in self.segments:
            blocks = []
            for at in starts[bisect.bisect_left(starts, address):bisect.bisect_left(starts, address + size)]:
                asked, rounded, _, frames = self.live.get(at, (0, self.sizes.get(at, 0), pool, []))
                state = "active_allocated" if at in self.live else "inactive"
                blocks.append({"address": at, "size": rounded, "requested_size": asked, "state": state,
                               "frames": frames})
            held = sum(block["size"] for block in blocks if block["state"] != "inactive")
            segments.append({"device": 0, "address": address, "total_size": size, "allocated_size": held,
                             "active_size": held, "requested_size": held, "stream": 0, "segment_type": pool,
                             "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks})
        return {"segments": segments, "device_traces": [self.events], "external_annotations": [],
                "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}}


def stack(*frames):
    """The innermost first, as PyTorch has it."""
    made = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
    return made + [{"filename": "/home/user/llm/train.py", "line": 212, "name": "main"},
                   {"filename": "/home/user/llm/train.py", "line": 240, "name": "<module>"}]


LINEAR = ("/usr/lib/python3/site-packages/torch/nn/modules/linear.py", 125, "forward")
MODEL = "/home/user/llm/model.py"


def forward_stacks():
    block = ((MODEL, 96, "forward"), (MODEL, 171, "forward"), ("/home/user/llm/train.py", 131, "train_step"))
    attention = ((MODEL, 58, "attention"), *block)
    return {
        "qkv": stack(LINEAR, (MODEL, 47, "attention"), *block), "scores": stack((MODEL, 52, "attention"), *block),
        "out": stack(LINEAR, *attention), "norm": stack((MODEL, 31, "rms_norm"), *block),
        "gate": stack(LINEAR, (MODEL, 74, "mlp"), *block), "up": stack(LINEAR, (MODEL, 75, "mlp"), *block),
        "silu": stack((MODEL, 76, "mlp"), *block), "mask": stack((MODEL, 44, "attention"), *block),
    }


class Training:
    def __init__(self, allocator):
        self.memory, self.kept = allocator, []
        self.forward = forward_stacks()
        self.build = stack((MODEL, 120, "__init__"), ("/home/user/llm/train.py", 60, "build"))
        self.adam = stack(("/home/user/llm/optim.py", 40, "init_state"), ("/home/user/llm/train.py", 150, "train_step"))
        self.clip = stack(("/home/user/llm/train.py", 146, "clip"), ("/home/user/llm/train.py", 150, "train_step"))
        self.metric = stack(("/home/user/llm/metrics.py", 18, "update"), ("/home/user/llm/train.py", 158, "train_step"))
        self.weights = [allocator.allocate(size, self.build) for _ in range(LAYERS)
                        for size in (96 * MIB, 32 * MIB, 86 * MIB, 86 * MIB, 86 * MIB, 16 * KIB, 16 * KIB)]
        self.state = []

    def step(self, number):
        saved = []
        for _ in range(LAYERS):
            for name, size in ACTIVATIONS:
                short = [self.memory.allocate(random.randrange(1, 900) * KIB, self.forward[name]) for _ in range(2)]
                saved.append(self.memory.allocate(size + random.randrange(64) * 512, self.forward[name]))
                for one in short:
                    self.memory.release(one)
        self.kept.append(self.memory.allocate(3 * MIB + 77 * KIB, self.metric))
        for one in reversed(saved):
            short = self.memory.allocate(random.randrange(1, 40) * MIB, [])
            self.memory.release(one)
            self.memory.release(short)
        if not self.state:
            self.state = [self.memory.allocate(self.memory.live[one][0], self.adam)
                          for one in self.weights for _ in range(2)]
        for _ in range(20):
            self.memory.release(self.memory.allocate(random.randrange(1, 4096) * KIB, self.clip))


def main(events, out):
    random.seed(7)
    memory = Allocator()
    training = Training(memory)
    step = 0
    while len(memory.events) < events - 3000:
        training.step(step)
        step += 1
    try:
        while True:  # what the metric has kept is not enough in a short run: a longer sequence comes
            memory.allocate(2 * GIB + 300 * MIB, training.forward["scores"])
    except MemoryError:
        pass
    with open(out, "wb") as file:
        pickle.dump(memory.snapshot(), file, protocol=4)
    print(f"{out}: {len(memory.events)} events, {step} steps, {memory.reserved / GIB:.1f} GiB reserved")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
