#!/usr/bin/env python3
"""Every stock program for real and rehearsed for the same card: peaks, errors, and wrong verdicts.

The real need of a program is the smallest limit on PyTorch's memory with which it completes on the card. It is searched
between the peaks of allocated and of reserved memory, to a quarter of a percent. The rehearsed program then has to fail
with 0.98 of it and to complete with 1.02 of it.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "tests/programs"
RESOLUTION = 0.0025
BARS = {"allocated": 0.01, "reserved": 0.01, "process": 0.03}
FALSE = {True: "false fits", False: "false does not fit"}


def cases(names, capacity):
    """The command lines that CI runs, as far as they can fit on a card of that capacity."""
    known = json.loads((PROGRAMS / "expected_peaks.json").read_text())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"gpu-check: no program '{unknown[0]}'; there are {' '.join(known)}")
    for name in names or known:
        if known[name].get("peak_allocated", 0) < 0.95 * capacity:
            yield name, known[name]


def run(machine, folder, case, limit=0):
    result = folder / "measured.json"
    script, *arguments = case["command"].split()
    machine.run([machine.python, ROOT / "tools/gpu_check/measure.py", result, int(limit), PROGRAMS / script, *arguments])
    return json.loads(result.read_text())


def need_of(fits, peak):
    """The smallest limit that `fits` accepts: never below what is allocated at once."""
    low, high = peak["allocated"], peak["reserved"]
    while high - low > RESOLUTION * high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def compare(real, rehearsed, folder, case):
    """One program: both peaks, the relative errors, the need, and the wrong verdicts."""
    measured, predicted = run(real, folder, case), run(rehearsed, folder, case)
    if not measured["fits"] or not predicted["fits"]:
        wrong = [] if measured["fits"] == predicted["fits"] else [FALSE[predicted["fits"]] + " on the whole card"]
        return {"real": measured, "rehearsed": predicted, "errors": {}, "need": None, "wrong": wrong}
    errors = {key: predicted[key] / measured[key] - 1 for key in BARS}
    need = need_of(lambda limit: run(real, folder, case, limit)["fits"], measured)
    wrong = []
    for factor, expected in ((0.98, False), (1.02, True)):
        verdict = run(rehearsed, folder, case, need * factor)["fits"]
        if verdict != expected:
            wrong.append(f"{FALSE[verdict]} at {factor}")
    return {"real": measured, "rehearsed": predicted, "errors": errors, "need": need, "wrong": wrong}


def row(name, outcome, conditional):
    def both(key):
        return f"{outcome['real'][key] / 2**20:.0f} / {outcome['rehearsed'][key] / 2**20:.0f}"

    errors = outcome["errors"]
    over = [key for key, error in errors.items() if abs(error) > BARS[key]]
    failed = bool(over or outcome["wrong"])
    shown = " ".join(f"{errors[key]:+.2%}" for key in errors) or "does not fit"
    need = f"{outcome['need'] / 2**20:.0f}" if outcome["need"] else ""
    verdict = ", ".join([*outcome["wrong"], *(f"{key} over its bar" for key in over)]) or "right"
    if conditional:
        verdict += " (depends on values)"
    return f"| {name} | {both('allocated')} | {both('reserved')} | {both('process')} | {shown} | {need} | {verdict} |", \
        failed


HEADER = ["", "Real / rehearsed peaks in MiB; errors of allocated, reserved and whole process (bars: 1%, 1%, 3%).", "",
          "| program | allocated | reserved | process | errors | real need | verdicts at 0.98 and 1.02 of it |",
          "|---|---|---|---|---|---|---|"]


def table(real, rehearsed, names, capacity, folder, say):
    """Says a row a program. Returns whether one missed its bars."""
    failed, counts = False, {text: 0 for text in FALSE.values()}
    say(*HEADER)
    for name, case in cases(names, capacity):
        try:
            outcome = compare(real, rehearsed, folder, case)
        except Exception as error:  # whatever one program does, the others are measured
            line, bad = f"| {name} | | | | | | FAIL: {error} |", True
        else:
            line, bad = row(name, outcome, case.get("conditional", False))
            for text in counts:
                counts[text] += sum(wrong.startswith(text) for wrong in outcome["wrong"])
        failed |= bad
        say(line)
    say("", "; ".join(f"{count} {text}" for text, count in counts.items()))
    return failed
