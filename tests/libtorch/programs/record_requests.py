"""record_requests.py FOLDER SCRIPT [ARGUMENT...]: runs a script and writes what it has asked for, of each device, at
each optimizer step and at its end: the blocks that are live and the bytes requested for them, and the totals. Each
process writes a file of its own in the folder.

Requested bytes are the same whoever allocates; PyTorch's memory_allocated is not, because its blocks may be up to 1 MiB
larger than what they were asked for. The statistic requested_bytes.all.current also counts what waits for another
stream, so the live blocks are taken from a snapshot. At the end only the totals are told: what is live then depends on
when the interpreter and NCCL's watchdog let go.
"""
import atexit
import os
import runpy
import sys

import torch

TOTALS = ("allocation.all.allocated", "requested_bytes.all.allocated", "num_ooms")
folder = sys.argv[1]
steps = 0


def live():
    """(Blocks, requested bytes) of each device."""
    found = [[0, 0] for _ in range(torch.cuda.device_count())]
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[segment["device"]][0] += 1
                found[segment["device"]][1] += block["requested_size"]
    return found


def tell(where, with_live):
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return
    blocks = live() if with_live else [[]] * torch.cuda.device_count()
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        if stats["allocation.all.allocated"]:
            with open(f"{folder}/{os.getpid()}", "a") as file:
                print(where, device, *[stats[key] for key in TOTALS], *blocks[device], file=file)


def stepped(*_):
    global steps
    steps += 1
    tell(f"step {steps}", True)


def main():
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(stepped)
    atexit.register(tell, "end", False)
    del sys.argv[:2]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
