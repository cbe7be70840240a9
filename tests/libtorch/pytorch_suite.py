#!/usr/bin/env python3
"""PyTorch's own tests of its CUDA memory on the simulated card, with its allocator and with Spillway's.

pytorch_suite.py FOLDER [options]   FOLDER holds PyTorch's test files (test_cuda.py, ...), which are not kept here

The tests of a file run one after the other in a process. Those that fail or crash there run again, each in a process
of its own, and that counts: what another test disturbed shows as what it is. Prints what did not pass, then what the
native allocator alone passes, with the reason where pytorch_suite.json has one; ends with 1 where it has none.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import simulated

HERE = pathlib.Path(__file__).resolve().parent
CHILD = HERE / "pytorch_suite_tests.py"
REASONS = HERE / "pytorch_suite.json"
ALLOCATORS = ("native", "spillway")
FILES = ("test_cuda.py", "test_cuda_expandable_segments.py", "test_cuda_multigpu.py", "test_cuda_primary_ctx.py",
         "test_cuda_sanitizer.py", "test_cuda_trace.py", "test_multiprocessing.py", "inductor/test_cudagraph_trees.py")
START_S = 120  # to import PyTorch and the file
PATHS = os.pathsep.join(filter(None, [str(simulated.ROOT / "python"), os.environ.get("PYTHONPATH")]))

Outcome = collections.namedtuple("Outcome", "state why")


def simulate(options, *settings):
    """The words before a program's own."""
    return [simulated.BUILD / "bin/spillway", "simulate", "--capacity", options.capacity, "--gpus", options.gpus,
            *settings, "--", sys.executable]


class Program:
    """One process that runs tests of a file, and what it recorded."""

    def __init__(self, options, allocator, file, names):
        self.folder = tempfile.TemporaryDirectory()
        self.record = pathlib.Path(self.folder.name) / "record"
        self.record.touch()
        self.output = open(pathlib.Path(self.folder.name) / "output", "w+", errors="replace")
        settings = {"SPILLWAY_SUITE_ALLOCATOR": allocator, "SPILLWAY_SUITE_VALUES": options.values,
                    "SPILLWAY_LIBRARIES": str(simulated.BUILD / "lib"), "PYTHONPATH": PATHS,
                    "TORCHINDUCTOR_CACHE_DIR": f"{self.folder.name}/inductor",
                    "TRITON_CACHE_DIR": f"{self.folder.name}/triton", "TMPDIR": self.folder.name}
        command = simulate(options, "--values", options.values) + [CHILD, options.folder / file, self.record, *names]
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.output, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, env={**os.environ, **settings}, cwd=self.folder.name,
                                        start_new_session=True)

    def lines(self):
        whole = [line for line in self.record.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in whole]

    def wait(self, limit_s):
        """Until it ends, or until one test takes longer than that: True."""
        seen, since = 0, time.monotonic()
        while self.process.poll() is None:
            count = len(self.lines())
            if count != seen:
                seen, since = count, time.monotonic()
            if time.monotonic() - since > (limit_s if seen else START_S):
                return True
            time.sleep(0.05)
        return False

    def close(self):
        """Ends all that it started, and returns the end of what it said."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.output.seek(0)
        said = [line for line in self.output.read().splitlines() if line.strip()]
        self.output.close()
        self.folder.cleanup()
        return said[-1][:300] if said else ""


def run_once(options, allocator, file, names):
    """The outcomes of tests that one process came to: all, or up to one that it did not survive."""
    program = Program(options, allocator, file, names)
    hung = program.wait(options.timeout)
    lines = program.lines()
    status = program.process.poll()
    said = program.close()
    outcomes = {line[0]: Outcome(*line[1:3]) for line in lines}
    for name, outcome in outcomes.items():
        if outcome.state == "begun":
            outcomes[name] = Outcome("hangs", said) if hung else Outcome("crashed", f"exit code {status}: {said}")
    if not outcomes:
        raise RuntimeError(f"{file} does not load with {allocator}: {said}")
    return outcomes


def run_file(options, allocator, file, names):
    """The outcomes of all of them."""
    outcomes, left = {}, names
    while left:
        outcomes.update(run_once(options, allocator, file, left))
        left = [name for name in names if name not in outcomes]
    for name, outcome in outcomes.items():
        if outcome.state in ("failed", "crashed") and len(names) > 1:
            outcomes[name] = run_once(options, allocator, file, [name])[name]
            if outcomes[name].state == "passed":
                outcomes[name] = Outcome("passed", "alone")
    return outcomes


def names_in(options, file):
    """The tests of a file, in its order."""
    command = simulate(options) + [CHILD, options.folder / file, "--list"]
    listed = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=START_S)
    names = [line for line in listed.stdout.splitlines() if re.fullmatch(r"\w+\.test\w*", line)]
    if not names:
        print(f"{file} does not load: {listed.stderr.strip()[-300:]}", flush=True)
    return [name for name in names if re.search(options.tests, name)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--files", nargs="+", metavar="FILE", help="below the folder; all that it has by default")
    parser.add_argument("--tests", default="", metavar="REGEX", help="only tests whose Class.name has a match")
    parser.add_argument("--values", choices=("compute", "zeros"), default="compute",
                        help="zeros: asserts on values are left out")
    parser.add_argument("--allocator", choices=(*ALLOCATORS, "both"), default="both")
    parser.add_argument("--timeout", type=float, default=60, metavar="S", help="for one test")
    parser.add_argument("--capacity", default="8GiB", help="of each card")
    parser.add_argument("--gpus", default="2")
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE", help="where all outcomes go, as JSON")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.files = options.files or [file for file in FILES if (options.folder / file).exists()]
    if missing := [file for file in options.files if not (options.folder / file).is_file()]:
        parser.error(f"'{options.folder}' has no {', '.join(missing)}")
    if not options.files:
        parser.error(f"'{options.folder}' has none of {', '.join(FILES)}: it is the folder test of PyTorch's source")
    options.allocators = ALLOCATORS if options.allocator == "both" else (options.allocator,)
    return options


def print_file(options, file, table):
    for allocator, outcomes in table.items():
        count = collections.Counter(outcome.state for outcome in outcomes.values())
        print(f"{file}: {allocator}: " + ", ".join(f"{number} {state}" for state, number in count.most_common()))
    for name in table[options.allocators[0]]:
        states = [table[allocator][name].state for allocator in options.allocators]
        if set(states) - {"passed", "skipped"}:
            why = " | ".join(dict.fromkeys(table[allocator][name].why for allocator in options.allocators))
            print(f"  {' '.join(f'{state:8}' for state in states)} {name}: {why}")
    sys.stdout.flush()


def differences(tables):
    """What passes natively only."""
    for file, table in tables.items():
        for name, outcome in table["native"].items():
            ours = table["spillway"][name]
            if outcome.state == "passed" and ours.state != "passed":
                yield name, ours


def main():
    options = arguments()
    tables = {}
    for file in options.files:
        names = names_in(options, file)
        if not names:
            continue
        with concurrent.futures.ThreadPoolExecutor() as pool:
            runs = {each: pool.submit(run_file, options, each, file, names) for each in options.allocators}
        tables[file] = {allocator: run.result() for allocator, run in runs.items()}
        print_file(options, file, tables[file])
        if options.record:
            options.record.write_text(json.dumps(tables, indent=1))
    if not tables:
        print("pytorch_suite.py: no test was run", file=sys.stderr)
        return 2
    if len(options.allocators) == 1:
        return 0
    reasons = json.loads(REASONS.read_text())
    unexplained = 0
    print("passed natively only:")
    for name, ours in sorted(set(differences(tables))):
        reason = reasons.get(name)
        unexplained += reason is None
        print(f"  {name}: {reason or 'NOT EXPLAINED: ' + ours.state + ': ' + ours.why}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
