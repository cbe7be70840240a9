#!/usr/bin/env python3
"""python_training_fits.py RUNNER SPILLWAY PYTHON SCRIPT

GPT-2 with 124 M parameters, batch 8 x 1024, bf16 autocast: its peak on the simulated card, that it fits on 16 GiB, and
that on 12 GiB it fails although the missing piece is reserved, as fragmentation does.
"""
import os
import re
import subprocess
import sys

MIB = 1 << 20
SIZE = "--layers 12 --width 768 --heads 12 --vocabulary 50257 --batch 8 --length 1024 --steps 2".split()


def train(capacity):
    environment = dict(os.environ, SPILLWAY_SIM_CAPACITY=capacity)
    return subprocess.run(["bash"] + sys.argv[1:] + SIZE, capture_output=True, text=True, env=environment)


def expect(condition, what, run):
    if not condition:
        sys.exit(f"{what}\n{run.stdout}\n{run.stderr}")


fits = train("16GiB")
expect(fits.returncode == 0, "batch 8 does not fit on 16 GiB", fits)
print(fits.stdout)
peaks = {name: int(value) / MIB for name, value in re.findall(r"peak_(\w+)=(\d+)", fits.stdout)}
# First measured over stubs of the CUDA libraries: 12,924 MiB and 14,546 MiB.
expect(abs(peaks["allocated"] / 12924 - 1) < 0.005, f"allocated {peaks['allocated']:.0f} MiB", fits)
expect(abs(peaks["reserved"] / 14546 - 1) < 0.005, f"reserved {peaks['reserved']:.0f} MiB", fits)

refused = train("12GiB")
expect(refused.returncode != 0, "batch 8 fits on 12 GiB", refused)
message = re.search(r"Tried to allocate (\S+) GiB.*and (\S+) GiB is reserved by PyTorch but unallocated",
                    refused.stderr)
expect(message is not None, "no out-of-memory message of the expected form", refused)
print(message.group(0))
expect(float(message.group(1)) > 1.5 and float(message.group(2)) > 1.4, "not the failure that was expected", refused)
