"""ranks_overlap.py BUILD --corpus TEXT: how much of the ranks' sums is hidden behind the backward.

Trains on simulated cards whose driver calls, copies and operators take time (profiles `typical` and
`timed-kernels`), without values, one rank a card, by SGD. What a step takes is the difference of runs with many steps
and with few. Sums are made behind the backward where each step has another plan than the one before (here in the batch
of the evaluation, which changes nothing of a step), and beside it where the plan stays. Of what they make a step longer
than that of one process with as many sequences, the part that goes when they are made beside is hidden.
"""
import json
import subprocess

from training import TIMED, command_line, options_of, trained

LAYERS, WIDTH, CONTEXT, ROWS, FEW, MANY = 24, 512, 512, 32, 3, 9
HEADS, VOCABULARY = 8, 256
SIZES = [f"model.layers={LAYERS}", f"model.width={WIDTH}", f"model.heads={HEADS}", f"model.context={CONTEXT}",
         "plan.evaluation_batch=1", "train.optimizer=sgd"]


def run_seconds(options, ranks, steps, beside, more=()):
    """Of the first rank's virtual clock; `more` settings."""
    plans = "".join(f"[[plan.schedule]]\nstep = {step}\nevaluation_batch = {1 + step % 2}\n"
                    for step in range(steps if not beside else 0))
    sizes = [*SIZES, f"train.batch={ROWS * ranks}", f"plan.micro_batch={ROWS}", f"evaluation.windows={ranks}",
             f"train.steps={steps}", *more]
    cards = ["--capacity", "60GiB", "--gpus", ranks, "--values", "zeros", *TIMED]
    with trained(options.build, options.corpus, sizes, cards, ranks=ranks, more=plans) as training:
        return training.counters["virtual_ns"] / 1e9


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
    parser = command_line(__doc__)
    options = options_of(parser)
    alone = step_seconds(options, 1, True)
    print(f"one process: {1e3 * alone:.1f} ms a step")
    print(f"{'ranks':>6} {'behind, ms':>11} {'beside, ms':>11} {'hidden':>8}")
    for ranks in 2, 4:
        behind, beside = (step_seconds(options, ranks, way) for way in (False, True))
        print(f"{ranks:6} {1e3 * behind:11.1f} {1e3 * beside:11.1f} "
              f"{100 * (behind - beside) / (behind - alone):6.1f} %", flush=True)


if __name__ == "__main__":
    main()
