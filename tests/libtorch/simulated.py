"""Runs a program on the simulated card with true values, as `spillway simulate --values compute` does."""
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
PROGRAMS = ROOT / "tests" / "programs"


LIBTORCH = ".".join(importlib.metadata.version("torch").split(".")[:2])  # "2.15"
MINOR = int(LIBTORCH.split(".")[1])


def for_libtorch(name):
    """The library of that name which is built for the interpreter's PyTorch."""
    return BUILD / "lib" / f"libspillway_{name}_{LIBTORCH.replace('.', '_')}.so"


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
        return "\n".join(self.report["violations"]["texts"]) if self.report else ""


def run(*command, capacity="4GiB", values="compute", timeout=280, **settings):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report"
        environment = {**os.environ, "SPILLWAY_SIM_REPORT": str(report), "SPILLWAY_LIBRARIES": str(BUILD / "lib"),
                       "PYTHONPATH": str(ROOT / "python"), **settings}
        simulate = [BUILD / "bin" / "spillway", "simulate", "--capacity", capacity, "--values", values, "--"]
        completed = subprocess.run([str(part) for part in [*simulate, *command]], capture_output=True, text=True,
                                   timeout=timeout, env=environment)
        # A program that never starts the simulated driver leaves no report.
        return Outcome(completed, json.loads(report.read_text()) if report.exists() else None)


def run_program(name, *arguments, allocator="native", **settings):
    """A Python program of tests/programs with PyTorch's own allocator or with Spillway's."""
    with_spillway = [PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
    return run(sys.executable, *with_spillway, PROGRAMS / name, *arguments, **settings)
