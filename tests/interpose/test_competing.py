"""Four programs of random allocations on one simulated card, under `spillway run` in `rescue` and in `replace`, killed
with SIGKILL at random instants and started again: no wrong byte, no violation, no request that waits for more than two
seconds, nothing left in the ledger.

usage: test_competing.py [--seconds N] [--kills N] [--seed N] [--rescue-only]      the seed is printed

It goes on until the seconds are over, that many programs were killed and a request needed a rescue.
With --rescue-only all keep PyTorch's allocator, whose lock a request holds while it asks the others; none is killed.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
SPILLWAY = BUILD / "bin" / "spillway"
PROGRAM = pathlib.Path(__file__).with_name("programs") / "competing.py"
MODES = (("--mode", "rescue"), ("--mode", "replace", "--host-budget", "256MiB", "--max-slowdown", "none"))
PROGRAMS, CAPACITY = 4, "640MiB"
KILLED = 128 + signal.SIGKILL
END_SECONDS = 60  # for all to end when they are told to, on a busy machine
SECONDS_BETWEEN_KILLS = 3  # on average; a start takes about five
GONE_SECONDS = 2  # until nobody sees a killed process any more
FIRST_RESCUE_SECONDS = 200  # on a busy machine the programs fill the card slowly


class Runner:
    """One program under `spillway run`."""

    def __init__(self, folder, settings, mode, seed):
        self.mode, self.seed = mode, seed
        self.path = folder / f"output-{seed}"
        words = [SPILLWAY, "simulate", "--values", "compute", "--capacity", CAPACITY, "--", SPILLWAY, "run",
                 *mode, "--quiet", "--", sys.executable, PROGRAM, str(seed), folder]
        with open(self.path, "w") as output:
            self.process = subprocess.Popen([str(word) for word in words], stdout=output, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, cwd=folder, env=settings)

    def program(self):
        """The process id once it has begun, None before that."""
        first = self.path.read_text().split("begun ", 1)
        return int(first[1].split()[0]) if len(first) == 2 and "\n" in first[1] else None

    def waits(self):
        """Those of more than two seconds."""
        lines = self.path.read_text().splitlines()
        return [json.loads(line.removeprefix("waited ")) for line in lines if line.startswith("waited {")]

    def output(self):
        return f"{self.mode[1]}, seed {self.seed}:\n{self.path.read_text()}"


class Soak:
    def __init__(self, folder, arguments):
        self.folder, self.random = folder, random.Random(arguments.seed)
        self.modes, self.kill = (MODES[:1], False) if arguments.rescue_only else (MODES, True)
        self.ledger = f"spillway-soak-{os.getpid()}"
        machine = folder / "machine"
        machine.touch()
        self.settings = {**os.environ, "SPILLWAY_LEDGER": self.ledger, "SPILLWAY_SIM_MACHINE": str(machine),
                         "SPILLWAY_SIM_REPORT": str(folder / "referee-%p.json"), "SPILLWAY_BUILD_DIR": str(BUILD),
                         "OMP_NUM_THREADS": "1"}
        self.runners, self.kills, self.looks, self.most_seen = [], 0, 0, 0
        self.done, self.rescued, self.waits = [], collections.Counter(), []

    def start(self, mode):
        self.runners.append(Runner(self.folder, self.settings, mode, self.random.getrandbits(30)))

    def seen(self):
        """Process ids that `spillway top` shows."""
        top = subprocess.run([SPILLWAY, "top", "--once", "--json"], capture_output=True, text=True, timeout=30,
                             env=self.settings)
        assert top.returncode == 0, f"spillway top ended with {top.returncode}: {top.stderr}"
        shown = json.loads(top.stdout)["processes"]
        pids = [process["pid"] for process in shown]
        for process in shown:
            self.rescued[process["pid"]] = max(self.rescued[process["pid"]], process.get("rescued", 0))
        self.looks += 1
        self.most_seen = max(self.most_seen, len(pids))
        return pids

    def check_alive(self):
        for runner in self.runners:
            assert runner.process.poll() is None, f"ended with {runner.process.returncode}: {runner.output()}"

    def kill_one(self):
        begun = [runner for runner in self.runners if runner.program() is not None]
        if not begun:
            return
        runner = self.random.choice(begun)
        self.runners.remove(runner)
        os.kill(runner.program(), signal.SIGKILL)
        status = runner.process.wait(timeout=END_SECONDS)
        assert status == KILLED, f"killed, it ended with {status}: {runner.output()}"
        until = time.monotonic() + GONE_SECONDS
        while runner.program() in self.seen():
            assert time.monotonic() < until, f"{runner.program()} was killed and is in the ledger"
        self.waits += runner.waits()
        for path in self.folder.glob(f"spillway-{runner.program()}.spill"):
            path.unlink()
        self.kills += 1
        self.start(runner.mode)

    def run(self, seconds, kills):
        for number in range(PROGRAMS):
            self.start(self.modes[number % len(self.modes)])
        begin = time.monotonic()
        while time.monotonic() < begin + seconds or self.kills < kills or self.rescued.total() == 0:
            assert time.monotonic() < begin + seconds + FIRST_RESCUE_SECONDS or self.rescued.total() > 0, \
                "no request needed a rescue: the card is too large"
            time.sleep(self.random.uniform(0, 2 * SECONDS_BETWEEN_KILLS))
            self.check_alive()
            self.seen()
            if self.kill:
                self.kill_one()

    def end(self):
        (self.folder / "stop").touch()
        for runner in self.runners:
            status = runner.process.wait(timeout=END_SECONDS)
            assert status == 0, f"ended with {status}: {runner.output()}"
            self.waits += runner.waits()
            self.done.append(json.loads(runner.path.read_text().splitlines()[-1]))
        assert self.seen() == [], "processes that have ended are in the ledger"
        for report in self.folder.glob("referee-*.json"):
            violations = json.loads(report.read_text())["violations"]
            assert violations["count"] == 0, violations["texts"]

    def clean(self):
        for runner in self.runners:
            if runner.program() is not None and runner.process.poll() is None:
                os.kill(runner.program(), signal.SIGKILL)
            runner.process.terminate()
            runner.process.wait()
        pathlib.Path("/dev/shm", self.ledger).unlink(missing_ok=True)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--rescue-only", action="store_true")
    arguments = parser.parse_args()
    if arguments.rescue_only and arguments.kills != 0:
        parser.error("--kills: with --rescue-only none is killed")
    return arguments


def main():
    arguments = parse()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(pathlib.Path(folder), arguments)
        try:
            soak.run(arguments.seconds, arguments.kills)
            soak.end()
        finally:
            soak.clean()
    assert soak.waits == [], f"longer than two seconds: {soak.waits}"
    print(f"{soak.kills} kills, {soak.looks} looks with at most {soak.most_seen} processes, "
          f"{soak.rescued.total()} rescues at least; the last {PROGRAMS}: {soak.done}")


if __name__ == "__main__":
    main()
