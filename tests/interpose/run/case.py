"""Programs under `spillway run`, on the simulated card."""
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
PROGRAMS = ROOT / "tests" / "programs"
OWN = ROOT / "tests" / "interpose" / "programs"
SPILLWAY = str(BUILD / "bin" / "spillway")
sys.path.insert(0, str(ROOT / "tests"))
import reports  # noqa: E402

USE_SHOWN = f"import sys; sys.path.insert(0, {str(OWN)!r}); import shown"  # programs/shown.py, in a program's text
TORCH = tuple(map(int, importlib.metadata.version("torch").split(".")[:2]))  # (2, 15)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


class Ended:
    def __init__(self, completed, folder):
        self.status, self.output, self.errors = completed.returncode, completed.stdout, completed.stderr
        lines = [line for line in completed.stderr.splitlines() if line.startswith("spillway: ")]
        self.line = lines[-1] if lines else ""
        self.reports = {path.name: reports.run(SPILLWAY, path).stdout
                        for path in sorted(pathlib.Path(folder).glob("*.spill"))}

    def number(self, pattern):
        found = re.search(pattern, self.line)
        return int(found.group(1)) if found else None


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def without_machine(self, *command, timeout=280, **settings):
        completed = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout,
                                   cwd=self.folder, env={**os.environ, "SPILLWAY_RUNS": "off", **settings})
        return Ended(completed, self.folder)

    def simulate(self, *command, card=("--gpu", "a100-40gb"), timeout=280, **settings):
        return self.without_machine(SPILLWAY, "simulate", *card, "--", *command, timeout=timeout, **settings)

    def run_on(self, *command, options=(), **others):
        return self.simulate(SPILLWAY, "run", *options, "--", *command, **others)

    def plain(self, *command, options=()):
        """Without a device."""
        words = [SPILLWAY, "run", *options, "--", *command]
        return Ended(subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=self.folder), self.folder)
