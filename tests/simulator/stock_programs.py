#!/usr/bin/env python3
"""Runs the stock programs of tests/programs at real sizes on the simulated card, without values.

stock_programs.py BUILD_FOLDER [NAME...]            compares with tests/programs/expected_peaks.json
stock_programs.py BUILD_FOLDER --write [NAME...]    writes what was measured into that file

A program's peaks and its whole stream of allocations (a digest of every action, size and address) are the same in every
run, so they are compared exactly. Its host memory stays below 3 GB however large the peak on the card is.
"""
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
CARD = "80GiB"
HOST_LIMIT = 3 * 10**9
MEASURED = ("peak_allocated", "peak_reserved", "allocator_events", "allocator_stream")


def command(build, words):
    return [build / "bin/spillway", "simulate", "--capacity", CARD, "--", HERE.parent.parent / ".deps/bin/python",
            HERE / "record_allocations.py", PROGRAMS / words[0], *words[1:]]


def run(build, case, folder):
    """What the program said, and the host memory of its largest process."""
    environment = dict(os.environ, SPILLWAY_SIM_REPORT=f"{folder}/report-%p")
    output = folder / "output"
    with output.open("w") as file:
        process = subprocess.Popen(command(build, case["command"].split()), stdout=file, stderr=subprocess.STDOUT,
                                   env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    text = output.read_text()
    complaints = [line for line in text.splitlines() if line.startswith("spillway")]
    for report in folder.glob("report-*"):
        complaints += json.loads(report.read_text())["violations"]["texts"]
    if process.returncode != 0 or complaints:
        raise SystemExit(f"exit code {process.returncode}\n{text[-4000:]}\n" + "\n".join(complaints))
    return text, usage.ru_maxrss << 10


def measure(build, name, case):
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        text, host = run(build, case, pathlib.Path(folder))
    values = dict(re.findall(r"^(\w+)=(\w+)$", text, re.MULTILINE))
    measured = {key: values[key] if key == "allocator_stream" else int(values[key]) for key in MEASURED}
    print(f"{name}: {measured['peak_allocated'] / 2**30:.2f} GiB allocated, {measured['peak_reserved'] / 2**30:.2f} "
          f"reserved, {measured['allocator_events']} events, {time.monotonic() - start:.1f} s, "
          f"host {host / 1e9:.2f} GB", flush=True)
    if host >= HOST_LIMIT:
        raise SystemExit(f"{name}: the host's memory went to {host} bytes")
    return measured


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    write = "--write" in sys.argv
    cases = json.loads(EXPECTED.read_text())
    names = [word for word in sys.argv[2:] if word != "--write"] or list(cases)
    for name in names:
        measured = measure(build, name, cases[name])
        expected = {key: cases[name].get(key) for key in MEASURED}
        if write:
            cases[name].update(measured)
            EXPECTED.write_text(json.dumps(cases, indent=1) + "\n")
        elif measured != expected:
            raise SystemExit(f"{name}: measured {measured}\nbut expected {expected}\n"
                             f"If that is meant: {pathlib.Path(__file__).name} BUILD_FOLDER --write {name}")


if __name__ == "__main__":
    main()
