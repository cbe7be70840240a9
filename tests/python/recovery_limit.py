"""Runs out of a small card's memory in earnest, with PyTorch's own allocator or Spillway's: something else fills the
card, and gives its memory back when it is asked to, or the micro-batch is split. Prints what was in use when room was
to be made, and whether the gradients are as with room.

usage: recovery_limit.py native|spillway give|split
"""
import sys

import torch

import spillway

ROWS, WIDTH = 4096, 512


def new_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(*[part for _ in range(4) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(),
                                                                     torch.nn.Dropout(0.2))]).cuda()


def train(redone, model, rows):
    """The gradients of three micro-batches of other sizes."""
    torch.manual_seed(2)
    for count in (ROWS, ROWS // 2, ROWS):
        redone(model, rows[:count])
    gradients = [parameter.grad.cpu() for parameter in model.parameters()]
    model.zero_grad()
    return gradients


def micro_batch(model, rows):
    model(rows).square().mean().backward()


def main():
    torch.set_num_threads(2)
    if sys.argv[1] == "spillway":
        spillway.install()
    splits = sys.argv[2] == "split"
    model = new_model().train(not splits)
    rows = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)).cuda()
    expected = train(micro_batch, model, rows)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    filling = [torch.empty(10 << 20, dtype=torch.uint8, device="cuda") for _ in range(18)]

    def make_room():
        used = torch.cuda.memory_allocated() - before - (len(filling) * 10 << 20)
        print("in use besides what was before, in MiB:", used >> 20)
        if splits or not filling:
            return False
        del filling[: -(-len(filling) // 2)]
        return True

    redone = spillway.step(micro_batch, make_room=make_room, attempts=8, split=splits)
    got = train(redone, model, rows)
    equal = all(torch.allclose(one, other, rtol=1e-4, atol=1e-9) if splits else torch.equal(one, other)
                for one, other in zip(expected, got))
    print("failures", redone.recovery.failures, "rows", redone.recovery.rows, "equal", equal)


if __name__ == "__main__":
    main()
