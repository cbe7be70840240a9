#!/usr/bin/env python3
"""timed.py SCRIPT [ARGUMENT...]: runs a training script unchanged and prints what its steps took, as the last line.

JSON, milliseconds from the end of one optimizer step to the end of the next: by the clock, and of processor time of all
the process's threads.
"""
import json
import os
import runpy
import sys
import time

from torch.optim.optimizer import register_optimizer_step_post_hook

ends = []


def stepped(optimizer, arguments, keywords):
    ends.append((time.perf_counter(), time.process_time()))


def main():
    register_optimizer_step_post_hook(stepped)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
    steps = [[1e3 * (after - before) for before, after in zip(one, two)] for one, two in zip(ends, ends[1:])]
    print(json.dumps({"clock": [step[0] for step in steps], "processor": [step[1] for step in steps]}))


if __name__ == "__main__":
    main()
