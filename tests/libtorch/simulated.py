"""Runs a program on the simulated card with true values, as `spillway simulate --values compute` does."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
PROGRAMS = ROOT / "tests" / "programs"
SIMULATED = BUILD / "lib" / "sim"


class Outcome:
    def __init__(self, completed, report):
        self.status = completed.returncode
        self.output = completed.stdout.splitlines()
        self.errors = completed.stderr
        self.report = report

    def simulator_remarks(self):
        """What the simulator said: a kernel that nothing stood in for, kernels that could not be installed."""
        return [line for line in self.errors.splitlines() if line.startswith("spillway")]

    def violations(self):
        return "\n".join(self.report["violations"]["texts"])


def environment(capacity="4GiB", **more):
    libraries = [SIMULATED / f"lib{name}" for name in
                 ("cudart.so.13", "cublas.so.13", "cublasLt.so.13", "cuda.so.1")]
    return {**os.environ, "LD_PRELOAD": " ".join(map(str, libraries)), "LD_LIBRARY_PATH": str(SIMULATED),
            "SPILLWAY_SIM_CAPACITY": capacity, "SPILLWAY_SIM_VALUES": "compute",
            "SPILLWAY_SIM_KERNELS": str(BUILD / "lib" / "libspillway_kernels.so"),
            "SPILLWAY_LIBRARIES": str(BUILD / "lib"), "PYTHONPATH": str(ROOT / "python"), **more}


def run(*command, **settings):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report"
        completed = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=280,
                                   env=environment(**settings, SPILLWAY_SIM_REPORT=str(report)))
        return Outcome(completed, json.loads(report.read_text()))


def run_program(name, *arguments, allocator="native", **settings):
    """A Python program of tests/programs with PyTorch's own allocator or with Spillway's."""
    with_spillway = [PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
    return run(sys.executable, *with_spillway, PROGRAMS / name, *arguments, **settings)
