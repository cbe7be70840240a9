#!/usr/bin/env python3
"""The card that gpu-check looks at, and how commands are run on it.

The same files lie below ROOT in a source tree and in the archive that tools/gpu-archive makes.
"""
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from . import manifest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OWN_PYTHON = ROOT / ".deps/bin/python"
PYTHON = os.environ.get("SPILLWAY_PYTHON") or str(OWN_PYTHON if OWN_PYTHON.exists() else sys.executable)
CORPUS = ROOT / ".deps/corpus.txt"
LONGEST = 400  # seconds of one command
MIB = 1 << 20


def torch_version():
    """As "2.11", or None."""
    code = "import importlib.metadata as it;print('.'.join(it.version('torch').split('.')[:2]))"
    found = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def build_name(packed, version):
    """The folder with the programs. An archive has one for each version of torch that it has a trainer for."""
    return packed["trainers"].get(version(), "build") if packed else "build"


BUILD = ROOT / build_name(manifest.read(ROOT), torch_version)


class CheckFailed(Exception):
    pass


class OutOfTime(Exception):
    """The call's time is used up: what was begun is no result."""


def require(condition, text):
    if not condition:
        raise CheckFailed(text)


def require_same_training(run, other, name):
    """Both runs end with the same weights, bit by bit; if not, the text names the first step that differs."""
    if run["weights"] == other["weights"]:
        return
    pairs = itertools.zip_longest(run["losses"], other["losses"], fillvalue="no such step")
    first = next((f"first in: {ours} | {theirs}" for ours, theirs in pairs if ours != theirs), "every loss is the same")
    raise CheckFailed(f"the final weights {run['weights']} differ from {other['weights']} of {name} ({first})")


def torch_folder():
    """The machine's own torch, or None."""
    code = "import importlib.util,pathlib;print(pathlib.Path(importlib.util.find_spec('torch').origin).parent)"
    found = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True)
    return pathlib.Path(found.stdout.strip()) if found.returncode == 0 else None


def run_for(command, seconds, **settings):
    """subprocess.run that ends all that the command started when the time is used up."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                          **settings) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except BaseException:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


class Machine:
    """Runs commands on the card, real or simulated, with the build's and torch's libraries in reach."""

    python = PYTHON

    def __init__(self, *simulate, host_budget=None):
        """Options of `spillway simulate`; none: the real card. `host_budget`: of host memory, as Spillway takes it."""
        self.prefix = [str(BUILD / "bin/spillway"), "simulate", *map(str, simulate), "--"] if simulate else []
        self.simulated = bool(simulate)
        self.deadline = None  # of time.monotonic: no command goes on beyond it
        torch = torch_folder()
        folders = [str(BUILD / "lib"), str(torch / "lib") if torch else "", os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, folders)),
                                PYTHONPATH=str(ROOT / "python"), SPILLWAY_BUILD_DIR=str(BUILD),
                                PYTHONDONTWRITEBYTECODE="1",
                                PATH=f"{pathlib.Path(PYTHON).parent}:{os.environ.get('PATH', '')}")
        self.host_budget = host_budget
        if host_budget:
            self.environment["SPILLWAY_HOST_BUDGET"] = host_budget

    def beside(self, *simulate):
        """Another simulated machine, with the time that this one has."""
        machine = Machine(*simulate, host_budget=self.host_budget)
        machine.deadline = self.deadline
        return machine

    def seconds_left(self):
        return LONGEST if self.deadline is None else self.deadline - time.monotonic()

    def start(self, command, environment, seconds=LONGEST):
        left = self.seconds_left()
        if left <= 0:
            raise OutOfTime()
        try:
            return run_for(self.prefix + [str(part) for part in command], min(seconds, left), cwd=ROOT,
                           env=dict(self.environment, **environment))
        except subprocess.TimeoutExpired:
            if left < seconds:
                raise OutOfTime() from None
            raise CheckFailed(f"no end after {seconds} s: {' '.join(map(str, command))}") from None

    def run(self, command, seconds=LONGEST, **environment):
        """The output of a command that has to succeed within `seconds`."""
        done = self.start(command, environment, seconds)
        require(done.returncode == 0,
                f"exit code {done.returncode}: {' '.join((done.stderr or done.stdout).strip().splitlines()[-1:])}")
        return done.stdout

    def must_fail(self, command, text, **environment):
        """Runs a command that ends with an error whose output names `text`."""
        done = self.start(command, environment)
        require(done.returncode != 0 and text in done.stderr + done.stdout,
                f"'{text}' was expected, the program ended with {done.returncode}")

    def train(self, folder, *options):
        result = folder / "result.json"
        self.run([BUILD / "bin/spillway-train", "--config", "configs/tiny.toml", "--device", "cuda", "--quiet",
                  "--json", result, "--set", f"run.out={folder / 'run'}", *options])
        return dict(json.loads(result.read_text()), losses=(folder / "run/losses.txt").read_text().splitlines())

    def whole_report(self, trace):
        """What `spillway report` says of a trace; on the host, whatever the machine is."""
        done = run_for([str(BUILD / "bin/spillway"), "report", "--json", str(trace)], LONGEST, env=self.environment)
        require(done.returncode == 0, f"spillway report: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)

    def report(self, trace):
        """Of the trace's run."""
        return self.whole_report(trace)["run"]
