#!/usr/bin/env python3
"""Runs the stock programs of tests/programs at real sizes on the simulated card, without values.

stock_programs.py BUILD_FOLDER [NAME...]            compares with tests/programs/expected_peaks.json
stock_programs.py BUILD_FOLDER --write [NAME...]    writes what was measured into that file
stock_programs.py BUILD_FOLDER --write-need [NAME...]    and the need of those, which takes some minutes

A program's peaks and its whole stream of allocations (a digest of every action, size and address) are the same in every
run with the same PyTorch, so they are compared exactly with what was measured with the version that is installed. Its
host memory stays below 3 GB however large the peak on the card is, and with Transformers 4, where GPT-2 XL takes 2.8 to
3.04, below 3.5. Rehearsed by `spillway rehearse` it has the same peaks, and the verdict is conditional where it reads
values. Its need is the smallest card on which that lets it complete: one of 1.02 times its size fits, and one of 0.98
does not. Where "masks" is none there, that is assumed: with Transformers 4 each expert of a mixture would have all
tokens, which fits no card.

Where nothing was measured with the installed PyTorch that is an error; with SPILLWAY_UNMEASURED=1 (tools/torch-matrix)
the rehearsed peaks must still be those of the run.
"""
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "programs"
EXPECTED = PROGRAMS / "expected_peaks.json"
CARD = "a100-80gb"
PYTHON = sys.executable
VERDICTS = {0: True, 20: False}  # exit codes: it fits, it does not
HOST_LIMIT = 35 * 10**8 if importlib.metadata.version("transformers").startswith("4.") else 3 * 10**9
VERSION = ".".join(importlib.metadata.version("torch").split(".")[:2])
MEASURED = ("peak_allocated", "peak_reserved", "allocator_events", "allocator_stream")


def program(case):
    script, *arguments = case["command"].split()
    return [PROGRAMS / script, *arguments]


def without_compiled_kernels(folder):
    """With those of an earlier run at hand torch.compile allocates less."""
    return dict(os.environ, TRITON_CACHE_DIR=f"{folder}/triton", TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor")


def run(build, case, folder):
    """What the program said."""
    environment = {**without_compiled_kernels(folder), "SPILLWAY_SIM_REPORT": f"{folder}/report-%p",
                   "SPILLWAY_SIM_MASKS": case.get("masks", "all")}
    command = [build / "bin/spillway", "simulate", "--gpu", CARD, "--", PYTHON, HERE / "record_allocations.py",
               *program(case)]
    output = folder / "output"
    with output.open("w") as file:
        process = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    text = output.read_text()
    complaints = [line for line in text.splitlines() if line.startswith("spillway")]
    for report in folder.glob("report-*"):
        complaints += json.loads(report.read_text())["violations"]["texts"]
    if process.returncode != 0 or complaints:
        raise SystemExit(f"exit code {process.returncode}\n{text[-4000:]}\n" + "\n".join(complaints))
    return text


def measure(build, name, case):
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        text = run(build, case, pathlib.Path(folder))
    values = dict(re.findall(r"^(\w+)=(\w+)$", text, re.MULTILINE))
    measured = {key: values[key] if key == "allocator_stream" else int(values[key]) for key in MEASURED}
    host = int(values["host_peak_kib"]) << 10
    print(f"{name}: {measured['peak_allocated'] / 2**30:.2f} GiB allocated, {measured['peak_reserved'] / 2**30:.2f} "
          f"reserved, {measured['allocator_events']} events, {time.monotonic() - start:.1f} s, "
          f"host {host / 1e9:.2f} GB", flush=True)
    if host >= HOST_LIMIT:
        raise SystemExit(f"{name}: the host's memory went to {host} bytes")
    return measured


def fits(build, case, capacity):
    """The verdict of `spillway rehearse` on a card of that many bytes."""
    done = subprocess.run([build / "bin/spillway", "rehearse", "--once", "--gpu", CARD,
                           "--capacity", str(int(capacity)), "--", PYTHON, *program(case)],
                          capture_output=True, text=True)
    if done.returncode not in VERDICTS:
        raise SystemExit(f"spillway rehearse: exit code {done.returncode}\n{done.stdout[-2000:]}\n"
                         f"{done.stderr[-2000:]}")
    return VERDICTS[done.returncode]


def rehearse(build, name, case):
    """Adds to `case` whether the verdict depends on values that the program read. The peaks are the program's own."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run([build / "bin/spillway", "rehearse", "--once", "--gpu", CARD, "--json", report, "--",
                               PYTHON, *program(case)], capture_output=True, text=True,
                              env=without_compiled_kernels(folder))
        if done.returncode != 0:
            raise SystemExit(f"{name}: spillway rehearse: exit code {done.returncode}\n{done.stdout[-2000:]}")
        result = json.loads(report.read_text())
    device = result["devices"][0]
    for key in ("peak_allocated", "peak_reserved"):
        if device[f"{key}_bytes"] != case[key]:
            raise SystemExit(f"{name}: rehearsed, {key} is {device[f'{key}_bytes']} instead of {case[key]}")
    return {"conditional": result["conditional"]}


def find_need(build, case):
    low, high = case["peak_allocated"], int(1.1 * case["peak_reserved"])
    while high - low > high // 400:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(build, case, middle) else (middle, high)
    return high


def check_verdicts(build, name, case):
    for factor, expected in ((1.02, True), (0.98, False)):
        if fits(build, case, factor * case["need"]) != expected:
            raise SystemExit(f"{name}: the verdict at {factor} of its need is wrong")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    write_need = "--write-need" in sys.argv
    write = write_need or "--write" in sys.argv
    cases = json.loads(EXPECTED.read_text())
    names = [word for word in sys.argv[2:] if not word.startswith("--")] or list(cases)
    for name in names:
        measured = measure(build, name, cases[name])
        measured |= rehearse(build, name, cases[name] | measured)
        known = cases[name]["measured"].setdefault(VERSION, {})
        if not known and os.environ.get("SPILLWAY_UNMEASURED") == "1":
            known.update(measured)
        expected = {key: known.get(key) for key in measured}
        if write:
            known.update(measured)
            if write_need:
                known["need"] = find_need(build, cases[name] | known)
                print(f"{name}: needs a card of {known['need'] / 2**30:.2f} GiB", flush=True)
            EXPECTED.write_text(json.dumps(cases, indent=1) + "\n")
        elif measured != expected:
            raise SystemExit(f"{name}: with PyTorch {VERSION} measured {measured}\nbut expected {expected}\n"
                             f"If that is meant: {pathlib.Path(__file__).name} BUILD_FOLDER --write {name}")
        elif "need" in known:
            check_verdicts(build, name, cases[name] | known)
    return 0


if __name__ == "__main__":
    sys.exit(main())
