#!/usr/bin/env python3
"""Host time and host memory of a stock program on a simulated card: GPT-2 of 124 M parameters, batch 8 x 1024, bf16.

bench_rehearse.py BUILD_FOLDER [--runs N] [--steps N] [--batch N] [--length N]

Prints a table and the same as JSON. `import torch` without the simulator and the whole program on it alternate.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".deps/bin/python"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--gpu", default="a100-40gb")
    for name, default in (("runs", 5), ("steps", 20), ("batch", 8), ("length", 1024)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def seconds_of(command):
    start = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - start


def train(options):
    """One run: seconds to the end of the first step, those of each later step, bytes of host memory."""
    command = [options.build / "bin/spillway", "rehearse", "--once", "--gpu", options.gpu, "--", PYTHON, "-u",
               ROOT / "tests/programs/gpt2_training.py", "--steps", str(options.steps), "--batch", str(options.batch),
               "--length", str(options.length)]
    times = [time.monotonic()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    output = []
    for line in process.stdout:
        output.append(line)
        if line.startswith("step "):
            times.append(time.monotonic())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or len(times) != options.steps + 1:
        raise SystemExit(f"the program ended with {process.returncode} after {len(times) - 1} steps")
    peak = int(re.search(r"peak_allocated=(\d+)", "".join(output)).group(1))
    later = [after - before for before, after in zip(times[1:], times[2:])]
    return times[1] - times[0], later, usage.ru_maxrss << 10, peak


def measure(options):
    imports, first, steps, host, peak = [], [], [], [], 0
    for _ in range(options.runs):
        imports.append(seconds_of([PYTHON, "-c", "import torch"]))
        to_first, later, bytes_of_host, peak = train(options)
        first.append(to_first)
        steps += later
        host.append(bytes_of_host)
    return {"runs": options.runs, "steps": len(steps), "gpu": options.gpu, "peak_allocated_gib": peak / 2**30,
            "step_ms": statistics.median(steps) * 1e3, "step_ms_worst": max(steps) * 1e3,
            "import_torch_s": statistics.median(imports), "first_step_s": statistics.median(first),
            "added_to_import_s": statistics.median(f - i for f, i in zip(first, imports)),
            "host_memory_gb": max(host) / 1e9}


def main():
    result = measure(arguments())
    rows = [("host time of a step, median", "step_ms", "ms", 50),
            ("host time of a step, worst", "step_ms_worst", "ms", None),
            ("import torch", "import_torch_s", "s", None),
            ("start to the end of the first step", "first_step_s", "s", None),
            ("start-up, beyond the import of torch", "added_to_import_s", "s", 3),
            ("host memory", "host_memory_gb", "GB", 3), ("peak on the card", "peak_allocated_gib", "GiB", None)]
    print("| figure | measured | bar |\n|---|---|---|")
    for text, key, unit, bar in rows:
        print(f"| {text} | {result[key]:.2f} {unit} | {'' if bar is None else f'≤ {bar} {unit}'} |")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
