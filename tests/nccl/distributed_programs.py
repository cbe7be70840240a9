#!/usr/bin/env python3
"""distributed_programs.py BUILD_FOLDER CASE: stock programs of tests/programs started by stock torchrun.

Without values at real sizes: they run, every rank prints the peaks that are expected, and no rank's referee saw a
violation; rehearsed again, each rank has the same stream of allocations, and where --steps ends it the same peaks. With
values at small sizes: the losses are those of one process with the same batch.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/programs"
PYTHON = sys.executable
GIB = 1 << 30
SMALL = "--layers 2 --width 64 --heads 4 --vocabulary 128 --length 32 --steps 3".split()
# The order of additions differs between one process and several; the losses are near 5.
TOLERANCE = 2e-5


def run(build, ranks, values, script, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, SPILLWAY_SIM_REPORT=f"{folder}/report-%p", OMP_NUM_THREADS="1")
        # --standalone takes a free port: tests run side by side.
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        completed = subprocess.run(
            [build / "bin/spillway", "simulate", "--capacity", "80GiB", "--gpus", str(ranks), "--values", values, "--",
             PYTHON, *torchrun, PROGRAMS / script, *arguments],
            capture_output=True, text=True, env=environment, timeout=170)
        complaints = [line for line in completed.stderr.splitlines() if line.startswith("spillway")]
        reports = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("report-*")]
    for report in reports:
        complaints += report["violations"]["texts"]
    if completed.returncode != 0 or complaints or len(reports) < ranks:
        raise SystemExit(f"{script} {arguments}: exit code {completed.returncode}, {len(reports)} reports\n"
                         f"{completed.stdout}\n{completed.stderr[-4000:]}\n" + "\n".join(complaints))
    return completed.stdout


def numbers(output, what, ranks):
    """For each rank the numbers that it printed after `what=`. Lines of several ranks may run into each other."""
    found = {rank: [] for rank in range(ranks)}
    for rank, text in re.findall(rf"rank (\d+): (?:(?!rank).)*?{what}=([-\d.]+)", output):
        found[int(rank)].append(float(text))
    return found


def expect_peaks(output, ranks, least, most):
    for rank, peaks in numbers(output, "peak_reserved", ranks).items():
        if len(peaks) != 1 or not least * GIB <= peaks[0] <= most * GIB:
            raise SystemExit(f"rank {rank} reserved {peaks}, not {least} to {most} GiB\n{output}")


def expect_losses(build, script, *arguments, ranks=2, small=SMALL, what="loss"):
    one, several = (run(build, count, "compute", script, *small, *arguments) for count in (1, ranks))
    alone = numbers(one, what, 1)[0]
    for rank, losses in numbers(several, what, ranks).items():
        apart = max(abs(a - b) for a, b in zip(alone, losses))
        if len(losses) != 3 or len(alone) != 3 or apart > TOLERANCE:
            raise SystemExit(f"{script}: rank {rank} of {ranks} has {losses}, one process {alone}")
    print(f"{script} {' '.join(arguments)}: {ranks} ranks, {what} {alone}")


def expect_order(build):
    """What a stream's later work computes is not overwritten by what its earlier work receives late."""
    output = run(build, 2, "compute", "late_collective.py")
    found = re.findall(r"rank 0: (\w+): same_place=(\d) right=(\d)", output)
    if len(found) != 4 or any((same_place, right) != ("1", "1") for _, same_place, right in found):
        raise SystemExit(f"late_collective.py\n{output}")


def values(build):
    expect_order(build)
    expect_losses(build, "ddp_training.py", "--check", ranks=4)
    expect_losses(build, "fsdp_training.py", "--api", "fsdp1")
    expect_losses(build, "fsdp_training.py", "--api", "fully_shard")
    expect_losses(build, "pipeline_p2p.py", "--batched")
    images = "--channels 4 --batch 12 --size 12 --steps 3".split()
    for what in ("loss", "evaluated"):
        expect_losses(build, "synchronized_norm.py", small=images, what=what)


def rehearsed(build, ranks, script, *arguments, flags=()):
    """Of each rank its peaks, how many events its allocator had, and a digest of their stream."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        completed = subprocess.run(
            [build / "bin/spillway", "rehearse", "--once", "--capacity", "80GiB", "--gpus", str(ranks), *flags,
             "--json", report, "--", PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
             str(ranks), PROGRAMS / script, *arguments], capture_output=True, text=True, timeout=120)
        if completed.returncode != 0 or "terminated with exception" in completed.stderr:
            raise SystemExit(f"{script}: exit code {completed.returncode}\n{completed.stdout[-2000:]}\n"
                             f"{completed.stderr[-4000:]}")
        devices = json.loads(report.read_text())["devices"]
    keys = ("device", "peak_allocated_bytes", "peak_reserved_bytes", "events", "stream_hash")
    return sorted([device.get(key) for key in keys] for device in devices if device["events"] > 0)


def repeats(build):
    for count, script, *arguments in ((3, "ddp_training.py", "--layers", "4"),
                                      (2, "fsdp_training.py", "--layers", "2"),
                                      (2, "fsdp_training.py", "--layers", "4", "--api", "fsdp1")):
        runs = [rehearsed(build, 2, script, *arguments) for _ in range(count)]
        if len(runs[0]) != 2 or runs[1:] != runs[:-1]:
            raise SystemExit(f"{script} {arguments}: its runs are not the same:\n" + "\n".join(map(str, runs)))
        print(script, *arguments, *runs[0])


def ended_by_steps(build):
    """A program that is ended in the middle, with collectives of which nobody has waited for the end, ends quietly."""
    for script, *arguments in (("ddp_training.py",), ("fsdp_training.py", "--width", "256", "--heads", "4")):
        runs = [rehearsed(build, 2, script, "--layers", "4", "--steps", "9", *arguments, flags=("--steps", "2"))
                for _ in range(2)]
        # But for the digest: as the process ends, the watchdog and the program free side by side.
        first, second = ([rank[:-1] for rank in run] for run in runs)
        if len(first) != 2 or first != second:
            raise SystemExit(f"{script} ended by --steps, its runs are not the same:\n{first}\n{second}")


def objects(build):
    """Objects arrive as they were sent, where nothing is computed too; of one rank as well."""
    for ranks in (1, 2):
        output = run(build, ranks, "zeros", "object_collectives.py")
        every = [{"rank": rank, "name": "x" * (rank + 1)} for rank in range(ranks)]
        for rank in range(ranks):
            for line in (f"all_gather {every}", f"broadcast {[every[0], 'text']}",
                         f"gather {None if rank else every}", f"scatter {[[rank] * (rank + 1)]}"):
                if f"rank {rank}: {line}" not in output:
                    raise SystemExit(f"{ranks} ranks: rank {rank} did not print {line!r}\n{output}")


def not_waited_for(build):
    """Ranks that wait for nothing end, under `spillway run` too, whose own threads go on asking the driver."""
    for api in ("ddp", "fully_shard"):
        completed = subprocess.run(
            [build / "bin/spillway", "simulate", "--capacity", "8GiB", "--gpus", "2",
             "--", build / "bin/spillway", "run",
             "--", PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             PROGRAMS / "ranks_that_do_not_wait.py", "--api", api], capture_output=True, text=True, timeout=100)
        ended = completed.stdout.count("destroyed the group")
        if completed.returncode != 0 or ended != 2:
            raise SystemExit(f"{api}: exit code {completed.returncode}, {ended} of 2 ranks ended\n{completed.stdout}\n"
                             f"{completed.stderr[-4000:]}")


def redone(build):
    """Calls that one rank cannot finish leave the bits of an undisturbed run, on cards of their own."""
    # With NCCL's setting there already, Spillway has nothing to say about it.
    os.environ.update(PYTHONPATH=str(ROOT / "python"), SPILLWAY_LIBRARIES=str(build / "lib"), NCCL_GRAPH_REGISTER="0")
    output = run(build, 2, "compute", "redone_ranks.py")
    if len(re.findall(r"rank \d: (?:ddp fired=[567]|fully_shard fired=7) equal=1", output)) != 4:
        raise SystemExit(output)
    print(output)


def main():
    build, case = pathlib.Path(sys.argv[1]), sys.argv[2]
    if case == "ddp":
        expect_peaks(run(build, 4, "zeros", "ddp_training.py", "--bf16"), 4, 8, 14)
    elif case == "ddp_mixed":
        output = run(build, 2, "zeros", "ddp_training.py", "--bf16", "--mixed", "--accumulate", "2", "--leave")
        expect_peaks(output, 2, 8, 14)
        if numbers(output, "sum_on_host", 2) != {0: [1], 1: [1]}:
            raise SystemExit(f"Gloo on the host gave something else\n{output}")
    elif case == "fsdp":
        expect_peaks(run(build, 2, "zeros", "fsdp_training.py", "--bf16", "--api", "fsdp1"), 2, 15, 30)
    elif case == "fully_shard":
        expect_peaks(run(build, 4, "zeros", "fsdp_training.py", "--bf16", "--steps", "2"), 4, 8, 20)
    elif case == "eight_ranks":
        expect_peaks(run(build, 8, "zeros", "fsdp_training.py", "--bf16", "--steps", "2", "--layers", "12"), 8, 3, 5)
    elif case == "pipeline":
        expect_peaks(run(build, 4, "zeros", "pipeline_p2p.py"), 4, 1, 10)
    elif case == "values":
        values(build)
    elif case == "repeats":
        repeats(build)
    elif case == "ended_by_steps":
        ended_by_steps(build)
    elif case == "objects":
        objects(build)
    elif case == "not_waited_for":
        not_waited_for(build)
    elif case == "redone":
        redone(build)
    else:
        raise SystemExit(f"no case {case}")


if __name__ == "__main__":
    main()
