#!/usr/bin/env python3
"""Every program of tests/programs asks for the same, step by step, with Spillway as PyTorch's allocator.

test_programs.py BUILD_FOLDER [NAME...]     all, or the named ones
Rehearses each on the native allocator and on Spillway's and compares the exit codes and, at each optimizer step and at
the end, what is requested and live, and the totals (record_requests.py).
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = ROOT / "tests" / "programs"
PYTHON = sys.executable
SKIPPED = 77
CARD = ("--gpu", "a100-80gb")
TIME_LIMIT_S = 600
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


class Case:
    def __init__(self, command, machine=CARD, launcher=(), needs=None, **settings):
        self.words, self.machine, self.launcher, self.needs = command.split(), machine, launcher, needs
        self.settings = settings


def cases():
    known = json.loads((PROGRAMS / "expected_peaks.json").read_text())
    all_cases = {name: Case(case["command"], needs=case.get("needs"), SPILLWAY_SIM_MASKS=case.get("masks", "all"))
                 for name, case in known.items()}
    for name in ("attention_backends", "attention_training", "common_operators", "convolutions", "cuda_graphs",
                 "fourier", "linear_algebra", "memory_pool", "recurrent", "sparse", "streams", "forked_child",
                 "memory_history", "shared_tensors"):
        all_cases[name] = Case(f"{name}.py")
    all_cases["nvml_queries"] = Case("nvml_queries.py", ("--gpu", "h100-80gb", "--gpus", "4"),
                                     CUDA_VISIBLE_DEVICES="2,0")
    all_cases["cuda_basics"] = Case("cuda_basics.py", ("--capacity", "8GiB"))
    all_cases["cuda_tools"] = Case("cuda_tools.py", ("--gpu", "h100-80gb"))
    all_cases["out_of_memory"] = Case("out_of_memory.py", ("--capacity", "2GiB"))
    all_cases["two_devices"] = Case("two_devices.py", (*CARD, "--gpus", "2"))
    all_cases["allocator_statistics"] = Case("allocator_statistics.py", ("--capacity", "8GiB", "--values", "compute"))
    for name in ("values_gpt2", "values_operators", "values_libraries", "values_random"):
        all_cases[name] = Case(f"{name}.py cuda" if name == "values_gpt2" else f"{name}.py",
                               ("--capacity", "8GiB", "--values", "compute"))
    for name in ("ddp_training", "fsdp_training", "pipeline_p2p"):
        all_cases[name] = Case(f"{name}.py", (*CARD, "--gpus", "2"), TORCHRUN)
    return all_cases


# Not here: expandable_segments.py and asynchronous_allocator.py choose an allocator of PyTorch's themselves.


def run(build, case, allocator):
    """The exit code, what was recorded, of all ranks, and the end of what was printed."""
    script, *arguments = case.words
    with tempfile.TemporaryDirectory() as folder:
        # With compiled kernels at hand from an earlier run, torch.compile allocates less.
        environment = dict(os.environ, TRITON_CACHE_DIR=f"{folder}/triton", PYTHONPATH=str(ROOT / "python"),
                           TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor", PYTHONWARNINGS="ignore", **case.settings)
        records = pathlib.Path(folder) / "records"
        records.mkdir()
        command = [build / "bin/spillway", "rehearse", "--once", *case.machine, "--allocator", allocator, "--", PYTHON,
                   *case.launcher, HERE / "programs" / "record_requests.py", records, PROGRAMS / script, *arguments]
        # A session of its own: what does not end is ended with all that it started.
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env=environment, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0] + f"\nstopped after {TIME_LIMIT_S} s\n"
        lines = sorted(line for file in records.iterdir() for line in file.read_text().splitlines())
    return process.returncode, lines, output[-5000:]


def first_difference(native, ours):
    for one, other in zip(native, ours):
        if one != other:
            return f"native   {one}\nspillway {other}"
    return f"native has {len(native)} lines, spillway {len(ours)}"


def check(build, name, case):
    """"" or what differs."""
    start = time.monotonic()
    native_code, native, native_text = run(build, case, "native")
    code, ours, text = run(build, case, "spillway")
    if code != native_code:
        return f"{name}: exit code {code} instead of {native_code}\n{text}"
    if native_code not in (0, 21):
        return f"{name}: exit code {native_code}\n{native_text}"
    if not native:
        return f"{name}: nothing was recorded\n{native_text}"
    if ours != native:
        return f"{name}: {first_difference(native, ours)}"
    print(f"{name}: the same in {len(native)} records, {time.monotonic() - start:.1f} s", flush=True)
    return ""


def importable(package):
    return package is None or subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True).returncode == 0


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    chosen = {name: cases()[name] for name in sys.argv[2:]} or cases()
    failed = []
    for name, case in chosen.items():
        if not importable(case.needs):
            print(f"{name}: skipped, the Python package '{case.needs}' is not installed")
            if len(chosen) == 1:
                return SKIPPED
            continue
        wrong = check(build, name, case)
        if wrong:
            failed.append(name)
            print(wrong, flush=True)
    if failed:
        print("not the same:", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
