"""A PyTorch training loop that halves its micro-batch when memory runs out, and goes on with the same step.

It registers a plan move with Spillway: what Spillway can do without the program's help comes first, and only when that
is not enough the request fails, the step unwinds, and the program asks which move was chosen. No Python runs inside the
allocator: the move is two numbers that the program keeps up to date.
"""
import argparse
import ctypes
import itertools

import torch

import spillway

NUMERICALLY_EQUAL, NEEDS_UNWINDING = 1, 16


class Offer(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64), ("cost_us", ctypes.c_uint64)]


class Strategy(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("name", ctypes.c_char_p), ("guarantee", ctypes.c_uint32),
                ("needs", ctypes.c_uint32), ("offer", ctypes.c_void_p), ("relieve", ctypes.c_void_p),
                ("context", ctypes.c_void_p)]


class PlanMove:
    """A change of plan that the program can make after it has unwound."""

    def __init__(self, core, name, saves_bytes):
        self.core, self.offer, self.id = core, Offer(saves_bytes, 1000), ctypes.c_uint64()
        strategy = Strategy(ctypes.sizeof(Strategy), name.encode(), NUMERICALLY_EQUAL, NEEDS_UNWINDING, None, None,
                            ctypes.addressof(self.offer))
        if core.spillway_register(ctypes.byref(strategy), ctypes.byref(self.id)) != 0:
            raise RuntimeError(core.spillway_last_error().decode())

    def withdraw(self):
        self.offer.bytes = 0

    def was_chosen(self):
        return self.core.spillway_chosen_move(None) == self.id.value


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--width", type=int, default=1024)
    return parser.parse_args()


def accumulate(model, batch, micro_batch):
    """The gradients of the mean over the whole batch, whatever the pieces."""
    total = 0.0
    for rows in batch.split(micro_batch):
        loss = model(rows).square().sum() / len(batch)
        loss.backward()
        total += loss.item()
    return total


def main():
    arguments = parse()
    spillway.install()
    torch.manual_seed(1)
    layers = [torch.nn.Linear(arguments.width, arguments.width) for _ in range(8)]
    model = torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.GELU())]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    core, micro_batch = spillway.core(), arguments.batch
    row_bytes = 4 * arguments.width * 2 * len(layers)  # of activations
    halve = PlanMove(core, "half the micro-batch", row_bytes * micro_batch // 2)
    for step in range(arguments.steps):
        batch = torch.randn(arguments.batch, arguments.width, device="cuda")
        for attempt in itertools.count():
            # With this the report knows the steps, and what SPILLWAY_RESERVE keeps is closed again after an unwinding.
            core.spillway_step_begin(*map(ctypes.c_uint64, (step, attempt, micro_batch)))
            try:
                loss = accumulate(model, batch, micro_batch)
                break
            except torch.OutOfMemoryError:
                if not halve.was_chosen():
                    raise
            # Outside `except`: the exception has kept the failed step's tensors until here.
            optimizer.zero_grad()
            micro_batch //= 2
            print(f"step {step}: micro-batches of {micro_batch} rows from now on")
            halve.offer.bytes = row_bytes * micro_batch // 2
            if micro_batch == 1:
                halve.withdraw()
        optimizer.step()
        optimizer.zero_grad()
        core.spillway_step_end(ctypes.c_uint64(step), ctypes.c_uint64(arguments.batch))
        print(f"step {step}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
