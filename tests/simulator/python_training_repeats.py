#!/usr/bin/env python3
"""python_training_repeats.py RUNNER LIBRARIES PYTHON SCRIPT: the training script's peaks are the same in two runs."""
import subprocess
import sys


def peaks():
    output = subprocess.run(["bash"] + sys.argv[1:], check=True, capture_output=True, text=True).stdout
    return [line for line in output.splitlines() if line.startswith("peak_")]


first, second = peaks(), peaks()
print("\n".join(first))
if len(first) != 2 or first != second:
    sys.exit(f"the peaks differ: {first} and {second}")
