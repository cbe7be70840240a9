"""Programs that die, each in one way, on a small simulated card; and what `spillway report` says of each."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
SPILLWAY = BUILD / "bin" / "spillway"
sys.path.insert(0, str(ROOT / "tests"))
import reports  # noqa: E402

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
SCRIPTS = PROGRAMS.parent / "scripts"
MIB = 1 << 20


class Died:
    """How a program ended, and what the report says of it, as text and as data; None where there is no trace."""

    def __init__(self, status, errors, text, data):
        self.status, self.errors, self.text, self.data = status, errors, text, data

    @property
    def incident(self):
        """The one that the report shows."""
        return next(one for one in self.data["incidents"] if one["incident"] == self.data["shown_incident"])

    @property
    def cause(self):
        return self.data["verdict"]["cause"] if "verdict" in self.data else self.incident["cause"]

    @property
    def verdict(self):
        return next((line for line in self.text.splitlines() if line.startswith("Verdict: ")), "")


def command_of(program):
    way, *words = program.split()
    return [PROGRAMS / f"{way}.py", *words]


def call(words, folder, timeout=120, **settings):
    """Each with a ledger of its own: other tests run on other cards of the same name."""
    environment = {**os.environ, "SPILLWAY_LIBRARIES": str(BUILD / "lib"), "PYTHONPATH": str(ROOT / "python"),
                   "SPILLWAY_LEDGER": f"deaths-{os.getpid()}-{pathlib.Path(folder).name}", **settings}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, cwd=folder,
                          env=environment)


def report(*words):
    return reports.text_of(SPILLWAY, *words)


def simulate(capacity, *command, values="zeros", machine=()):
    return [SPILLWAY, "simulate", "--capacity", capacity, "--values", values, *machine, "--", *command]


def died_under_run(program, *options, capacity="256MiB", before=(), values="zeros", machine=(), **settings):
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.spill"
        words = simulate(capacity, *before, SPILLWAY, "run", "--trace", trace, *options, "--", sys.executable,
                         *command_of(program), values=values, machine=machine)
        done = call(words, folder, **settings)
        ledger = pathlib.Path("/dev/shm") / f"deaths-{os.getpid()}-{pathlib.Path(folder).name}"
        ledger.unlink(missing_ok=True)
        if not trace.exists():
            return Died(done.returncode, done.stderr, None, None)
        return Died(done.returncode, done.stderr, report(trace), json.loads(report("--json", trace)))


def died_natively(program, capacity="256MiB", before=(), **settings):
    """Under PyTorch's own memory history, without Spillway."""
    with tempfile.TemporaryDirectory() as folder:
        snapshot = pathlib.Path(folder) / "snapshot.pickle"
        words = simulate(capacity, *before, sys.executable, PROGRAMS / "with_history.py", snapshot,
                         *command_of(program))
        done = call(words, folder, **settings)
        if not snapshot.exists():
            return Died(done.returncode, done.stderr, None, None)
        of = ("--capacity", capacity, snapshot)
        return Died(done.returncode, done.stderr, report(*of), json.loads(report("--json", *of)))


def was_killed(status):
    return status == 128 + signal.SIGKILL
