#!/usr/bin/env python3
"""8-bit AdamW on the card: whether the kernel has a processor's bits, and its speed beside LibTorch's operators."""
import json
import subprocess

from .machine import BUILD, CheckFailed, require

MILLIONS, FEW_MILLIONS = 64, 1  # of numbers; the few are for a simulated card, which a processor computes
LEAST_OF_A_COPY = 0.5  # of the bytes a second that a copy on the card moves
HEADER = ["", "| 8-bit AdamW by | numbers with other bits than a processor's | GB/s | of a copy |", "|---|---|---|---|"]


def row(way, found, simulated):
    speed = found[f"{way}_bytes_per_second"]
    figures = "not measured | " if simulated else f"{speed / 1e9:.0f} | {speed / found['copy_bytes_per_second']:.2f}"
    name = {"kernel": "the kernel", "operators": "LibTorch's operators"}[way]
    return f"| {name} | {found[f'{way}_apart']} | {figures} |"


def judge(found):
    require(found["remark"] == "", found["remark"])
    require(found["kernel_apart"] == 0, f"{found['kernel_apart']} numbers of the kernel have other bits")
    if not found["simulated"]:
        share = found["kernel_bytes_per_second"] / found["copy_bytes_per_second"]
        require(share >= LEAST_OF_A_COPY, f"the kernel moves {share:.2f} of what a copy does")


def table(machine, say):
    """Says a row a way of the update. Returns whether the kernel failed."""
    say(*HEADER)
    try:
        done = machine.start([BUILD / "bin/bench_quantized_gpu", FEW_MILLIONS if machine.simulated else MILLIONS], {})
        require(done.stdout.startswith("{"), f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        found = json.loads(done.stdout)
        for way in ("kernel", "operators"):
            say(row(way, found, machine.simulated))
        judge(found)
    except (CheckFailed, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        say(f"| the kernel | FAIL: {error} | | |")
        return True
    return False
