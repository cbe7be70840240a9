"""sharing_a_card.py FOLDER hoard|need: two programs that share a card of 40 GiB and know nothing of each other. One
keeps 30 GiB in PyTorch's cache, of which it uses none; the other needs 20 GiB then. FOLDER is only for their timing.
"""
import pathlib
import sys
import time

import torch

from shown import wait_until_cached

folder, role = pathlib.Path(sys.argv[1]), sys.argv[2]


def wait_for(name):
    for _ in range(600):
        if (folder / name).exists():
            return
        time.sleep(0.05)
    sys.exit(f"{role}: {name} never came")


if role == "hoard":
    kept = torch.ones(1 << 20, device="cuda")
    blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(30)]
    del blocks
    wait_until_cached(30 << 30)
    (folder / "hoarded").touch()
    wait_for("needed")
    print("hoard: still has", kept.numel(), "and reserves", torch.cuda.memory_reserved() >> 30)
    kept.add_(1)
    torch.cuda.synchronize()
else:
    wait_for("hoarded")
    try:
        blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(20)]
        print("need: has", len(blocks))
    finally:
        (folder / "needed").touch()
