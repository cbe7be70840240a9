"""record_requests.py SCRIPT [ARGUMENT...]: runs a script and prints what it has asked for at each optimizer step and at
its end, of each device: the bytes requested and allocations that are live, and the totals.

Requested bytes are the same whoever allocates; PyTorch's memory_allocated is not, because its blocks may be up to 1 MiB
larger than what they were asked for. Memory that another stream still uses counts until it is free, so streams are
waited for first.
"""
import atexit
import os
import runpy
import sys

import torch

KEYS = ("requested_bytes.all.current", "allocation.all.current", "allocation.all.allocated",
        "requested_bytes.all.allocated", "num_ooms")
steps = 0


def tell(where):
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        if stats["allocation.all.allocated"]:
            print("requests", where, device, *[stats[key] for key in KEYS], flush=True)


def stepped(*_):
    global steps
    steps += 1
    tell(f"step {steps}")


def main():
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(stepped)
    atexit.register(tell, "end")
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
