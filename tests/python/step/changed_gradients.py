"""Functions that change gradients on a card, where torch._foreach_* does not count that: what a redo comes to."""
import logging

import torch

import spillway

ROWS = 8


def clip(model, optimizer):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def zero(model, optimizer):
    torch._foreach_zero_([one.grad for one in model.parameters()])


def same(model, optimizer):
    torch._foreach_mul_([one.grad for one in model.parameters()], 1.0)


def outcome(fails, accumulated, before=None, after=None, split=False, where="end"):
    """The gradients, or the kind of error. The function does `before`, a forward and backward pass, and `after`."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rows = torch.randn(ROWS, 16, device="cuda")
    failing = [1] * fails

    def fail(place):
        if failing and place == where:
            failing.pop()
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")

    @spillway.step(model=model, split=split)
    def micro_batch(rows):
        if before is not None:
            before(model, optimizer)
        if split and fails and len(rows) > ROWS // 4:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        loss = model(rows).square().mean()
        middle = model[0].bias.register_hook(lambda _: fail("backward"))
        loss.backward()
        middle.remove()
        if after is not None:
            after(model, optimizer)
        fail("end")

    if accumulated:
        model(rows).square().sum().backward()
    try:
        micro_batch(rows)
    except RuntimeError as error:
        return "error" if "something else than the backward pass" in str(error) else repr(error)
    return [one.grad for one in model.parameters()]


def compared(name, **options):
    once, again = (outcome(fails, **options) for fails in (False, True))
    if isinstance(again, str):
        print(name, again)
    elif all(torch.equal(one, other) if not options.get("split") else torch.allclose(one, other, rtol=1e-4, atol=1e-7)
             for one, other in zip(once, again)):
        print(name, "the same")
    else:
        print(name, "others")


def main():
    logging.getLogger("spillway").setLevel(logging.CRITICAL)
    compared("clipped where there was no gradient:", accumulated=False, after=clip)
    compared("clipped before the failure:", accumulated=True, after=clip)
    compared("clipped after the failure:", accumulated=True, after=clip, where="backward")
    compared("zeroed in place before the failure:", accumulated=True, before=zero, where="backward")
    compared("multiplied by one:", accumulated=True, after=same)
    for after in (clip, None):
        for accumulated in (False, True):
            for where in ("start", "end"):
                what = "clipped" if after else "left alone"
                compared(f"{what} in pieces:", accumulated=accumulated, after=after, split=True, where=where)


if __name__ == "__main__":
    main()
