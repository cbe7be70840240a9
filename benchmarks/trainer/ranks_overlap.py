"""ranks_overlap.py BUILD --corpus TEXT: how much of the ranks' sums is hidden behind the backward.

Trains on simulated cards whose driver calls, copies and operators take time (profiles `typical` and
`timed-kernels`), without values, one rank a card, by SGD. What a step takes is the difference of runs with many steps
and with few. Sums are made behind the backward where each step has another plan than the one before (here in the batch
of the evaluation, which changes nothing of a step), and beside it where the plan stays. Of what they make a step longer
than that of one process with as many sequences, the part that goes when they are made beside is hidden.
"""
import argparse
import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS, WIDTH, CONTEXT, ROWS, FEW, MANY = 24, 512, 512, 32, 3, 9
HEADS, VOCABULARY = 8, 256
SIZES = [f"model.layers={LAYERS}", f"model.width={WIDTH}", f"model.heads={HEADS}", f"model.context={CONTEXT}",
         "plan.evaluation_batch=1", "train.optimizer=sgd"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run_seconds(options, ranks, steps, beside, more=()):
    """Of the first rank's virtual clock; `more` settings."""
    with tempfile.TemporaryDirectory() as folder:
        report, config = pathlib.Path(folder) / "simulated", pathlib.Path(folder) / "config.toml"
        plans = "".join(f"[[plan.schedule]]\nstep = {step}\nevaluation_batch = {1 + step % 2}\n"
                        for step in range(steps if not beside else 0))
        config.write_text((ROOT / "configs" / "tiny.toml").read_text() + plans)
        sizes = [*SIZES, f"train.batch={ROWS * ranks}", f"plan.micro_batch={ROWS}", f"evaluation.windows={ranks}",
                 f"train.steps={steps}", f"run.out={folder}", f"data.corpus={options.corpus}", *more]
        train = [options.build / "bin" / "spillway-train", "--config", config, "--device", "cuda", "--quiet",
                 *itertools.chain.from_iterable(("--set", each) for each in sizes)]
        launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
                  f"--master-port={free_port()}", "--no-python"]
        command = [options.build / "bin" / "spillway", "simulate", "--capacity", "60GiB", "--gpus", str(ranks),
                   "--values", "zeros", "--profile", "typical,timed-kernels", "--", *launch,
                   "bash", "-c", f'SPILLWAY_SIM_REPORT={report}.$RANK exec "$@"', "bash", *train]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            causes = {line for line in done.stderr.splitlines() if line.startswith("spillway-train: ")}
            sys.exit("\n".join(sorted(causes)) or done.stdout[-1500:] + done.stderr[-1500:])
        return json.loads(pathlib.Path(f"{report}.0").read_text())["counters"]["virtual_ns"] / 1e9


def step_seconds(options, ranks, beside, more=()):
    few, many = (run_seconds(options, ranks, steps, beside, more) for steps in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def estimated(options, family, layers, ranks, zero, numerics, rows=ROWS):
    """What bench_ranks says of the same step; numerics: the optimizer and the precision."""
    sizes = map(str, (layers, WIDTH, HEADS, CONTEXT, VOCABULARY, rows, ranks, zero))
    done = subprocess.run([options.build / "bin" / "bench_ranks", "step", family, *sizes, *numerics],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.build, options.corpus = options.build.resolve(), options.corpus.resolve()
    alone = step_seconds(options, 1, True)
    print(f"one process: {1e3 * alone:.1f} ms a step")
    print(f"{'ranks':>6} {'behind, ms':>11} {'beside, ms':>11} {'hidden':>8}")
    for ranks in 2, 4:
        behind, beside = (step_seconds(options, ranks, way) for way in (False, True))
        print(f"{ranks:6} {1e3 * behind:11.1f} {1e3 * beside:11.1f} "
              f"{100 * (behind - beside) / (behind - alone):6.1f} %", flush=True)


if __name__ == "__main__":
    main()
