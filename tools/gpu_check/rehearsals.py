#!/usr/bin/env python3
"""Every stock program for real and rehearsed for the same card: peaks, errors, and wrong verdicts.

The real need of a program is found on the card, by measure.py: the smallest limit on PyTorch's memory with which it
completes, searched between the peaks of allocated and of reserved memory to a quarter of a percent, and what the
process holds beside. What is rehearsed is judged by `spillway rehearse` alone, by its report and its exit code: on a
card of 0.98 of the need it has to say that the program does not fit, and on one of 1.02 that it does.
"""
import json
import re
import subprocess

from . import card as cards
from .machine import BUILD, LONGEST, PYTHON, ROOT, OutOfTime, run_for
from .part import Group, Outcome, Part

PROGRAMS = ROOT / "tests/programs"
RESOLUTION = 0.0025
BARS = {"allocated": 0.01, "reserved": 0.01, "process": 0.03}
VERDICTS = {0: True, 20: False}  # exit codes of spillway rehearse
FALSE = {True: "false fits", False: "false does not fit"}


class NoVerdict(ValueError):
    pass


def cases(names):
    """The command lines that CI runs."""
    known = json.loads((PROGRAMS / "expected_peaks.json").read_text())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"gpu-check: no program '{unknown[0]}'; there are {' '.join(known)}")
    return [(name, known[name]) for name in names or known]


def fits_at_all(case, capacity):
    return max(it["peak_allocated"] for it in case["measured"].values()) < 0.95 * capacity


def missing_modules(case):
    """What the program imports and this machine's Python does not have."""
    text = (PROGRAMS / case["command"].split()[0]).read_text()
    wanted = sorted(set(re.findall(r"^\s*(?:from|import) (transformers|torchvision|numpy)\b", text, re.MULTILINE)))
    code = "import importlib.util as it, sys; print(*[name for name in sys.argv[1:] if not it.find_spec(name)])"
    return subprocess.run([str(PYTHON), "-c", code, *wanted], capture_output=True, text=True).stdout.split()


def words_of(case):
    script, *arguments = case["command"].split()
    return [str(PROGRAMS / script), *arguments]


class Card:
    """Runs programs on a machine's card and measures them from within."""

    def __init__(self, machine, folder):
        self.machine, self.result = machine, folder / "measured.json"

    def run(self, case, limit=0):
        """The peaks, and whether it fits. `limit`: bytes that PyTorch may reserve; 0 for all."""
        self.machine.run([self.machine.python, ROOT / "tools/gpu_check/programs/measure.py", self.result, int(limit),
                          *words_of(case)])
        return json.loads(self.result.read_text())


class Rehearsal:
    """Asks `spillway rehearse` about the card of a configuration."""

    def __init__(self, spillway, python, config, folder, machine):
        self.command = [str(spillway), "rehearse", "--once", "--config", str(config)]
        self.python, self.report, self.machine = str(python), folder / "rehearsed.json", machine

    def run(self, case, capacity=0):
        """The peaks, and whether it says that it fits. `capacity`: bytes of the card; 0 for those that it has."""
        room = ["--capacity", str(int(capacity))] if capacity else []
        left = self.machine.seconds_left()
        try:
            done = run_for([*self.command, *room, "--json", str(self.report), "--", self.python, *words_of(case)],
                           max(min(LONGEST, left), 0.001), cwd=ROOT)
        except subprocess.TimeoutExpired:
            if left < LONGEST:
                raise OutOfTime() from None
            raise
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


def outcome_of(name, real, rehearsal, case):
    compared = compare(real, rehearsal, case)
    line, bad = row(name, compared)
    return Outcome([line], failed=bad, data=compared)


def counts(data):
    """The table's foot."""
    wrong = [text for compared in data for text in (compared or {}).get("wrong", [])]
    said = {text: sum(each.startswith(text) for each in wrong) for text in FALSE.values()}
    return ["", "; ".join(f"{count} {text}" for text, count in said.items())]


def look_at(name, case):
    def run(setting):
        missing = missing_modules(case)
        if missing:
            return Outcome([f"| {name} | | | | | | left out: there is no {', '.join(missing)} here |"])
        real = setting.options.real_card
        described = cards.described(setting, real)
        if not fits_at_all(case, described["capacity"]):
            return Outcome([f"| {name} | | | | | | too large for this card |"])
        cards.write_config(setting.folder / "card.toml", BUILD / "bin/spillway", described)
        asked = Rehearsal(BUILD / "bin/spillway", PYTHON, setting.folder / "card.toml", setting.folder, real)
        return outcome_of(name, Card(real, setting.folder), asked, case)
    return run


GROUP = Group("rehearsals", HEADER, counts)


def parts(names):
    def part(name, case):
        return Part(GROUP.name, name, 120, look_at(name, case), lambda text: f"| {name} | | | | | | FAIL: {text} |")
    return [part(name, case) for name, case in cases(names)]
