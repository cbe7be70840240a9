#!/usr/bin/env python3
"""Every stock program for real and rehearsed for the same card: peaks, errors, and wrong verdicts.

The real need of a program is found on the card, by measure.py: the smallest limit on PyTorch's memory with which it
completes, searched between the peaks of allocated and of reserved memory to a quarter of a percent, and what the
process holds beside. What is rehearsed is judged by `spillway rehearse` alone, by its report and its exit code: on a
card of 0.98 of the need it has to say that the program does not fit, and on one of 1.02 that it does.
"""
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "tests/programs"
RESOLUTION = 0.0025
BARS = {"allocated": 0.01, "reserved": 0.01, "process": 0.03}
VERDICTS = {0: True, 20: False}  # exit codes of spillway rehearse
FALSE = {True: "false fits", False: "false does not fit"}


class NoVerdict(Exception):
    pass


def cases(names, capacity):
    """The command lines that CI runs, as far as they can fit on a card of that capacity."""
    known = json.loads((PROGRAMS / "expected_peaks.json").read_text())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"gpu-check: no program '{unknown[0]}'; there are {' '.join(known)}")
    for name in names or known:
        if max(it["peak_allocated"] for it in known[name]["measured"].values()) < 0.95 * capacity:
            yield name, known[name]


def words_of(case):
    script, *arguments = case["command"].split()
    return [str(PROGRAMS / script), *arguments]


class Card:
    """Runs programs on a machine's card and measures them from within."""

    def __init__(self, machine, folder):
        self.machine, self.result = machine, folder / "measured.json"

    def run(self, case, limit=0):
        """The peaks, and whether it fits. `limit`: bytes that PyTorch may reserve; 0 for all."""
        self.machine.run([self.machine.python, ROOT / "tools/gpu_check/measure.py", self.result, int(limit),
                          *words_of(case)])
        return json.loads(self.result.read_text())


class Rehearsal:
    """Asks `spillway rehearse` about the card of a configuration."""

    def __init__(self, spillway, python, config, folder):
        self.command = [str(spillway), "rehearse", "--once", "--config", str(config)]
        self.python, self.report = str(python), folder / "rehearsed.json"

    def run(self, case, capacity=0):
        """The peaks, and whether it says that it fits. `capacity`: bytes of the card; 0 for those that it has."""
        room = ["--capacity", str(int(capacity))] if capacity else []
        done = subprocess.run([*self.command, *room, "--json", str(self.report), "--", self.python, *words_of(case)],
                              cwd=ROOT, capture_output=True, text=True, timeout=400)
        if done.returncode not in VERDICTS:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise NoVerdict(f"spillway rehearse gave no verdict: exit code {done.returncode}: {' '.join(said)}")
        report = json.loads(self.report.read_text())
        card = report["cards"][0]
        return {"fits": VERDICTS[done.returncode], "conditional": report["conditional"],
                "allocated": card["peak_allocated_bytes"], "reserved": card["peak_reserved_bytes"],
                "process": card["peak_bytes"]}


def need_of(fits, peak):
    """The smallest limit that `fits` accepts: never below what is allocated at once."""
    low, high = peak["allocated"], peak["reserved"]
    while high - low > RESOLUTION * high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def compare(real, rehearsal, case):
    """One program: both peaks, the relative errors, the need, and the wrong verdicts."""
    measured, predicted = real.run(case), rehearsal.run(case)
    outcome = {"real": measured, "rehearsed": predicted, "errors": {}, "need": None, "wrong": []}
    if not measured["fits"] or not predicted["fits"]:
        if measured["fits"] != predicted["fits"]:
            outcome["wrong"] = [FALSE[predicted["fits"]] + " on the whole card"]
        return outcome
    outcome["errors"] = {key: predicted[key] / measured[key] - 1 for key in BARS}
    limit = need_of(lambda bytes_: real.run(case, bytes_)["fits"], measured)
    outcome["need"] = limit + measured["process"] - measured["reserved"]
    for factor, expected in ((0.98, False), (1.02, True)):
        verdict = rehearsal.run(case, outcome["need"] * factor)["fits"]
        if verdict != expected:
            outcome["wrong"].append(f"{FALSE[verdict]} at {factor}")
    return outcome


def row(name, outcome):
    """The line of the table, and whether the program missed a bar."""
    def both(key):
        return f"{outcome['real'][key] / 2**20:.0f} / {outcome['rehearsed'][key] / 2**20:.0f}"

    errors = outcome["errors"]
    over = [key for key, error in errors.items() if abs(error) > BARS[key]]
    shown = " ".join(f"{errors[key]:+.2%}" for key in errors) or "does not fit"
    need = f"{outcome['need'] / 2**20:.0f}" if outcome["need"] else ""
    verdict = ", ".join([*outcome["wrong"], *(f"{key} over its bar" for key in over)]) or "right"
    if outcome["rehearsed"]["conditional"]:
        verdict += " (depends on values)"
    line = f"| {name} | {both('allocated')} | {both('reserved')} | {both('process')} | {shown} | {need} | {verdict} |"
    return line, bool(over or outcome["wrong"])


HEADER = ["", "Real / rehearsed peaks in MiB; errors of allocated, reserved and whole process (bars: 1%, 1%, 3%).", "",
          "| program | allocated | reserved | process | errors | real need | verdicts at 0.98 and 1.02 of it |",
          "|---|---|---|---|---|---|---|"]


def table(real, rehearsal, chosen, say):
    """Says a row a program. Returns whether one missed its bars."""
    failed, counts = False, dict.fromkeys(FALSE.values(), 0)
    say(*HEADER)
    for name, case in chosen:
        try:
            outcome = compare(real, rehearsal, case)
        except Exception as error:  # whatever one program does, the others are measured
            line, bad = f"| {name} | | | | | | FAIL: {error} |", True
        else:
            line, bad = row(name, outcome)
            for text in counts:
                counts[text] += sum(wrong.startswith(text) for wrong in outcome["wrong"])
        failed |= bad
        say(line)
    say("", "; ".join(f"{count} {text}" for text, count in counts.items()))
    return failed
