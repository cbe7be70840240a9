#!/usr/bin/env python3
"""timed.py SCRIPT [ARGUMENT...]: runs a training script unchanged, some steps at a time, and tells what they took.

After each bout of OVERHEAD_STEPS optimizer steps it writes a line to the descriptor OVERHEAD_TELL, a JSON list of
[milliseconds by the clock, of processor time of all threads], and waits for a byte from OVERHEAD_WAIT before it goes
on, so that another process can have its turn in between. The first step of all is the first bout's.
"""
import json
import os
import runpy
import sys
import time

from torch.optim.optimizer import register_optimizer_step_post_hook

STEPS, TELL, WAIT = (int(os.environ["OVERHEAD_" + name]) for name in ("STEPS", "TELL", "WAIT"))
bout = []


def now():
    return 1e3 * time.perf_counter(), 1e3 * time.process_time()


def stepped(optimizer, arguments, keywords):
    global last
    end = now()
    bout.append([after - before for before, after in zip(last, end)])
    if len(bout) == STEPS:
        os.write(TELL, (json.dumps(bout) + "\n").encode())
        bout.clear()
        os.read(WAIT, 1)
        end = now()
    last = end


def main():
    global last
    register_optimizer_step_post_hook(stepped)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    last = now()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
