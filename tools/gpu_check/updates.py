#!/usr/bin/env python3
"""AdamW on the card: whether its kernels have a processor's bits, and their speed beside LibTorch's operators."""
import json

from .machine import BUILD, require
from .part import FAULTS, Group, Outcome, Part

MILLIONS, FEW_MILLIONS = 64, 1  # of numbers; the few are for a simulated card, which a processor computes
LEAST_OF_A_COPY = {"adamw8bit": 0.5, "adamw": 0.8}  # of the bytes a second that a copy on the card moves
HEADER = ["", "| update, by | numbers with other bits than a processor's | GB/s | of a copy |", "|---|---|---|---|"]


WAYS = {"kernel": "the kernel", "operators": "LibTorch's operators"}
UPDATES = {"adamw8bit": "8-bit AdamW", "adamw": "AdamW"}


def row(update, way, found):
    of = found[update]
    speed = of[f"{way}_bytes_per_second"]
    figures = ("not measured | " if found["simulated"] else
               f"{speed / 1e9:.0f} | {speed / found['copy_bytes_per_second']:.2f}")
    return f"| {UPDATES[update]}, {WAYS[way]} | {of[f'{way}_apart']} | {figures} |"


def other_bits(way, of):
    cases = ", ".join(f"{case}: {count}" for case, count in of.get(f"{way}_apart_in", {}).items())
    return f"{WAYS[way]}: {of[f'{way}_apart']} numbers have other bits" + (f" ({cases})" if cases else "")


def findings(update, found):
    """What is wrong, each by itself. A simulated card computes the operators by a processor's LibTorch, whose roots are
    not always the nearest number, and it has no speed."""
    of = found[update]
    if of["remark"]:
        yield of["remark"]
    if of["kernel_apart"]:
        yield other_bits("kernel", of)
    if found["simulated"]:
        return
    if of["operators_apart"]:
        yield other_bits("operators", of)
    share = of["kernel_bytes_per_second"] / found["copy_bytes_per_second"]
    if share < LEAST_OF_A_COPY[update]:
        yield f"the kernel moves {share:.2f} of what a copy does"


def compare(machine):
    """A row a way of the update, and one a finding."""
    rows, found = [], None
    try:
        done = machine.start([BUILD / "bin/bench_updates_gpu", FEW_MILLIONS if machine.simulated else MILLIONS], {})
        require(done.stdout.startswith("{"), f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        found = json.loads(done.stdout)
        rows += [row(update, way, found) for update in UPDATES for way in WAYS]
        wrong = [f"{UPDATES[update]} | FAIL: {finding}" for update in UPDATES for finding in findings(update, found)]
    except FAULTS as error:
        wrong = [f"updates | FAIL: {error}"]
    rows += [f"| {finding} | | |" for finding in wrong]
    return Outcome(rows, failed=bool(wrong), data=found)


GROUP = Group("updates", HEADER)
PART = Part(GROUP.name, "bits and speed", 30, lambda setting: compare(setting.machine))
