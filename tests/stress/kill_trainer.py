"""Kills a training run with SIGKILL at random instants; each time the report must open and name the step.

The run trains on a simulated card that is too small for it, so kills also fall into incidents and changes of plan. The
step that the report names must not lie behind the last step whose progress line the run had printed.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import reports  # noqa: E402

PROGRESS = re.compile(r"^step (\d+)/", re.MULTILINE)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    return parser.parse_args()


def start(build, out, log):
    command = [build / "bin/spillway", "simulate", "--capacity", "64MiB", "--values", "compute", "--",
               build / "bin/spillway-train", "--config", "configs/tiny.toml", "--device", "cuda", "--limit", "5MiB",
               "--set", f"run.out={out}", "--set", "train.steps=100000"]
    return subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))


def wait_for_first_step(process, log_path):
    deadline = time.monotonic() + 60
    while not PROGRESS.search(log_path.read_text()):
        assert process.poll() is None, "the run ended by itself:\n" + log_path.read_text()
        assert time.monotonic() < deadline, "no step within 60 s"
        time.sleep(0.002)


def kill_once(build, folder, delay):
    out = folder / "run"
    log_path = folder / "log.txt"
    with open(log_path, "w") as log:
        process = start(build, out, log)
        try:
            wait_for_first_step(process, log_path)
            time.sleep(delay)
            assert process.poll() is None, "the run ended by itself:\n" + log_path.read_text()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert process.returncode == -signal.SIGKILL
    printed = int(PROGRESS.findall(log_path.read_text())[-1])
    seen = reports.data_of(build / "bin/spillway", out / "trace.spill")["run"]
    assert not seen["ended"], "a killed run is said to have ended"
    begun = seen["last_step_begun"]["step"]  # counts from 0; progress lines count from 1
    assert printed - 1 <= begun <= printed + 1, f"progress printed step {printed}, the report names {begun + 1}"
    return begun + 1, seen["failures"]


def main():
    arguments = parse()
    print(f"seed {arguments.seed}")
    instants = random.Random(arguments.seed)
    steps, failures = [], 0
    for number in range(arguments.kills):
        with tempfile.TemporaryDirectory() as folder:
            # Half of the kills fall into the first steps, where the plan changes.
            delay = instants.uniform(0, 0.02 if number % 2 else 0.8)
            step, failed = kill_once(arguments.build, pathlib.Path(folder), delay)
            steps.append(step)
            failures += failed
    assert failures > 0, "no run met an allocation failure: the card is not too small"
    print(f"{len(steps)} kills, at steps {min(steps)} to {max(steps)}; every report opened and named the step; "
          f"{failures} allocation failures were on record")


if __name__ == "__main__":
    sys.exit(main())
