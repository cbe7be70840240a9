#!/usr/bin/env python3
"""python_cards.py RUNNER SPILLWAY PYTHON SCRIPT

A stock program on a card of each compute capability: it sees the card and trains. On one for which PyTorch has no
kernels it fails as on that card, and the reason is said.
"""
import importlib.metadata
import os
import re
import subprocess
import sys

CARDS = {
    "t4-16gb": ("Tesla T4", "7.5"),
    "a100-80gb": ("NVIDIA A100-SXM4-80GB", "8.0"),
    "a10g-24gb": ("NVIDIA A10G", "8.6"),
    "rtx4090-24gb": ("NVIDIA GeForce RTX 4090", "8.9"),
    "h100-80gb": ("NVIDIA H100 80GB HBM3", "9.0"),
    "b200-180gb": ("NVIDIA B200", "10.0"),
    "rtx5090-32gb": ("NVIDIA GeForce RTX 5090", "12.0"),
}


def train(card, *arguments):
    return subprocess.run(["bash", *sys.argv[1:], *arguments], capture_output=True, text=True,
                          env=dict(os.environ, SPILLWAY_SIM_CARD=card))


def expect(condition, what, run):
    if not condition:
        sys.exit(f"{what}\n{run.stdout}\n{run.stderr}")


for card, (name, capability) in CARDS.items():
    run = train(card, "--without-cudnn")
    expect(run.returncode == 0, f"{card}: the program failed", run)
    expect(f"name={name} capability={capability} " in run.stdout, f"{card}: another card", run)
    total, properties, held = (int(re.search(rf"{what}=(\d+)", run.stdout).group(1))
                               for what in ("total", "properties", "held"))
    expect(total == properties, f"{card}: two capacities", run)
    expect(64 << 20 < held < 1 << 30, f"{card}: the context holds {held}", run)
    print(card, run.stdout.replace("\n", " "))

volta = train("v100-16gb")
if int(importlib.metadata.version("torch").split(".")[1]) < 11:  # built for CUDA 12, with kernels for a V100
    expect(volta.returncode == 0, "a card with kernels does not train", volta)
else:
    expect(volta.returncode != 0, "a card without kernels trains", volta)
    expect("no kernel image is available for execution on the device" in volta.stderr, "another failure", volta)
    expect("libtorch_cuda.so has no kernels for compute capability 7.0 (Tesla V100-SXM2-16GB): it was built for sm_75 "
           "sm_80" in volta.stderr, "the reason is not said", volta)
