#!/usr/bin/env python3
"""The card that gpu-check looks at, and how commands are run on it."""
import itertools
import json
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
OWN_PYTHON = ROOT / ".deps/bin/python"
PYTHON = os.environ.get("SPILLWAY_PYTHON") or (str(OWN_PYTHON) if OWN_PYTHON.exists() else shutil.which("python3"))


class CheckFailed(Exception):
    pass


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


def torch_library_folder():
    code = "import importlib.util,pathlib;print(pathlib.Path(importlib.util.find_spec('torch').origin).parent/'lib')"
    return subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


class Machine:
    """Runs commands on the card, real or simulated, with the build's and torch's libraries in reach."""

    python = PYTHON

    def __init__(self, *simulate):
        """Options of `spillway simulate`; none: the real card."""
        self.prefix = [str(BUILD / "bin/spillway"), "simulate", *map(str, simulate), "--"] if simulate else []
        self.simulated = bool(simulate)
        folders = [str(BUILD / "lib"), torch_library_folder(), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, folders)),
                                PYTHONPATH=str(ROOT / "python"), SPILLWAY_BUILD_DIR=str(BUILD),
                                PATH=f"{pathlib.Path(PYTHON).parent}:{os.environ.get('PATH', '')}")

    def start(self, command, environment):
        return subprocess.run(self.prefix + [str(part) for part in command], cwd=ROOT, capture_output=True, text=True,
                              timeout=400, env=dict(self.environment, **environment))

    def run(self, command, **environment):
        """The output of a command that has to succeed."""
        done = self.start(command, environment)
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
