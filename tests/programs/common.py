"""What the training scripts here share: options with real sizes as defaults, and the memory that they print.

Knows nothing of Spillway: any script with such lines would do.
"""
import argparse
import resource
import time

import torch


def options(description, **defaults):
    """Command-line options named after `defaults`, of the types of their values, and --steps and --seed."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, value in {"steps": 3, "seed": 0, **defaults}.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(option, action="store_true", default=value)
        else:
            parser.add_argument(option, type=type(value), default=value, help=f"default: {value}")
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    return chosen


class Progress:
    """Prints a line per step with the allocated bytes, and at the end the peaks."""

    def __init__(self):
        self.ends = [time.monotonic()]

    def step(self, number):
        print(f"step {number}: memory_allocated={torch.cuda.memory_allocated()}", flush=True)
        self.ends.append(time.monotonic())

    def finish(self):
        torch.cuda.synchronize()
        print(f"peak_allocated={torch.cuda.max_memory_allocated()}")
        print(f"peak_reserved={torch.cuda.max_memory_reserved()}")
        print(f"last_step_ms={(self.ends[-1] - self.ends[-2]) * 1e3:.1f}")
        print(f"host_rss={resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}")
