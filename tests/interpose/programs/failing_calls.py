"""failing_calls.py [FIRST STRIDE [DRIVER_FUNCTION]]: for n = FIRST, FIRST + STRIDE, ... trains a small GPT-2 from the
same start while the n-th driver call that takes memory, or of that function, fails once; ends when a training has
fewer calls. Each must have exactly the losses of a training without failures, or end by an exception that names the
failure, and leave nothing. Prints what came out as JSON; without arguments only the losses without a failure.
"""
import faulthandler
import gc
import json
import re
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from simulator_control import CONTROL, OUT_OF_MEMORY, broken_invariant, counts, text

MOST_SECONDS = 60  # of one training, which takes about one
STEPS, WIDTH, LAYERS = 2, 512, 1
HOLES = 4  # of 2 MiB, which serve only in pieces
KEPT_BYTES = 8 << 20  # host memory of a spill that failed, kept for a later one


def train():
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=211, n_positions=64, n_embd=WIDTH, n_layer=LAYERS, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 211, (4, 32), generator=torch.Generator().manual_seed(3)).to("cuda")
    pieces = [torch.zeros(2 << 20, dtype=torch.uint8, device="cuda") for _ in range(2 * HOLES)]
    del pieces[::2]
    losses = []
    for _ in range(STEPS):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses += [loss.item().hex(), norm.item().hex()]
    return losses


def attempt():
    """The losses, or the exception's text. What it leaves behind is freed with its frame."""
    try:
        return train(), None
    except Exception as error:  # noqa: BLE001
        return None, f"{type(error).__name__}: {error}"


def bytes_left():
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), counts().live_pages_bytes


def stop(n, what):
    sys.exit(f"call {n} failed on purpose: {what}")


def one_failure(n, name, expected, left):
    """None when the training had fewer calls than n."""
    fired = counts().injected_failures
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
    CONTROL.fail_call(n, name, 0, OUT_OF_MEMORY)
    losses, error = attempt()
    CONTROL.fail_call(0, None, 0, 0)
    fired = counts().injected_failures - fired
    if losses is not None and losses != expected:
        stop(n, f"other losses: {losses}")
    if error is not None and not re.search(r"out of memory|ALLOC_FAILED", error, re.IGNORECASE):
        stop(n, f"the error does not name it: {error}")
    if error is not None and fired == 0:
        stop(n, f"without it, the training raised {error}")
    now = bytes_left()
    if now[:2] != left[:2] or now[2] > left[2] + KEPT_BYTES:
        stop(n, f"left {now} bytes allocated, reserved and of pages, and {left} without a failure; {error}")
    broken = broken_invariant()
    if broken is not None:
        stop(n, broken)
    if counts().violations != 0:
        stop(n, text(CONTROL.violations))
    faulthandler.cancel_dump_traceback_later()
    return None if fired == 0 else error or ""


def main():
    expected, error = attempt()
    if error is not None:
        sys.exit(f"without a failure: {error}")
    if len(sys.argv) == 1:
        return print(json.dumps({"expected": expected}))
    first, stride = int(sys.argv[1]), int(sys.argv[2])
    name = sys.argv[3].encode() if len(sys.argv) > 3 else None
    left = bytes_left()
    tried, finished, raised, start = 0, 0, [], time.monotonic()
    for n in range(first, 100_000, stride):
        outcome = one_failure(n, name, expected, left)
        if outcome is None:
            break
        tried += 1
        finished += outcome == ""
        raised += [(n, outcome[:200])] if outcome else []
    if attempt() != (expected, None):
        sys.exit("after all failures the training is another one")
    print(json.dumps({"expected": expected, "tried": tried, "fired": counts().injected_failures, "finished": finished,
                      "raised": raised, "seconds": round(time.monotonic() - start, 1)}))


if __name__ == "__main__":
    main()
