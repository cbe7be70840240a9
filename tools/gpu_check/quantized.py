#!/usr/bin/env python3
"""8-bit AdamW on the card: whether the kernel has a processor's bits, and its speed beside LibTorch's operators."""
import json

from .machine import BUILD, require
from .part import FAULTS, Group, Outcome, Part

MILLIONS, FEW_MILLIONS = 64, 1  # of numbers; the few are for a simulated card, which a processor computes
LEAST_OF_A_COPY = 0.5  # of the bytes a second that a copy on the card moves
HEADER = ["", "| 8-bit AdamW by | numbers with other bits than a processor's | GB/s | of a copy |", "|---|---|---|---|"]


NAMES = {"kernel": "the kernel", "operators": "LibTorch's operators"}


def row(way, found, simulated):
    speed = found[f"{way}_bytes_per_second"]
    figures = "not measured | " if simulated else f"{speed / 1e9:.0f} | {speed / found['copy_bytes_per_second']:.2f}"
    return f"| {NAMES[way]} | {found[f'{way}_apart']} | {figures} |"


def other_bits(way, found):
    cases = ", ".join(f"{case}: {count}" for case, count in found.get(f"{way}_apart_in", {}).items())
    return f"{NAMES[way]}: {found[f'{way}_apart']} numbers have other bits" + (f" ({cases})" if cases else "")


def findings(found):
    """What is wrong, each by itself. A simulated card computes the operators by a processor's LibTorch, whose roots are
    not always the nearest number, and it has no speed."""
    if found["remark"]:
        yield found["remark"]
    if found["kernel_apart"]:
        yield other_bits("kernel", found)
    if found["simulated"]:
        return
    if found["operators_apart"]:
        yield other_bits("operators", found)
    share = found["kernel_bytes_per_second"] / found["copy_bytes_per_second"]
    if share < LEAST_OF_A_COPY:
        yield f"the kernel moves {share:.2f} of what a copy does"


def compare(machine):
    """A row a way of the update, and one a finding."""
    rows, found = [], None
    try:
        done = machine.start([BUILD / "bin/bench_quantized_gpu", FEW_MILLIONS if machine.simulated else MILLIONS], {})
        require(done.stdout.startswith("{"), f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        found = json.loads(done.stdout)
        rows += [row(way, found, machine.simulated) for way in ("kernel", "operators")]
        wrong = list(findings(found))
    except FAULTS as error:
        wrong = [error]
    rows += [f"| 8-bit AdamW | FAIL: {finding} | | |" for finding in wrong]
    return Outcome(rows, failed=bool(wrong), data=found)


GROUP = Group("8-bit AdamW", HEADER)
PART = Part(GROUP.name, "bits and speed", 30, lambda setting: compare(setting.machine))
