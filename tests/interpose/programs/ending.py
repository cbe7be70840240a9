"""Runs out of memory, goes on, and ends in a way: ending.py FAILURES WAY. It waits for files that others make, and
fails where they do not come."""
import os
import pathlib
import signal
import sys
import time

import torch


def wait_for(met, what):
    deadline = time.monotonic() + 60
    while not met():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come")
        time.sleep(0.02)


def page():
    return next(iter(pathlib.Path(".").glob("*.html")), None)


def wait_for_page(*_):
    wait_for(page, "the page")
    print("page", flush=True)


kept = torch.empty(500 << 20, dtype=torch.uint8, device="cuda")
failures, way = int(sys.argv[1]), sys.argv[2]
for number in range(failures):
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        print(error, flush=True)
    if number == 0 and failures > 1:
        wait_for_page()
if way == "page":
    wait_for_page()
elif way == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif way == "error":
    sys.exit(3)
elif way == "term":
    caught = []
    signal.signal(signal.SIGTERM, lambda *_: caught.append(1))
    os.kill(os.getppid(), signal.SIGTERM)
    wait_for(lambda: caught, "the signal")
    wait_for_page()
