#!/usr/bin/env python3
"""ends.py WAY: uses the card and then ends: by an exit code (`code`), by a signal (`signal`), by abort (`abort`), or by
an allocation that does not fit and that nobody catches (`memory`)."""
import os
import resource
import signal
import sys

import torch

EXIT_CODE, BLOCK = 7, 256 << 20


def out_of_memory():
    kept = []
    while True:
        kept.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))


resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
torch.ones(1 << 20, device="cuda").sum().item()
print("used the card", flush=True)
{"code": lambda: sys.exit(EXIT_CODE), "signal": lambda: os.kill(os.getpid(), signal.SIGKILL), "abort": os.abort,
 "memory": out_of_memory}[sys.argv[1]]()
