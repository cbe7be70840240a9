"""step_time.py BUILD --corpus TEXT [--within PASSES UPDATE]: a step of one process, measured and by the estimate.

Trains on a simulated card as ranks_overlap.py does: virtual time, no values. A step of two micro-batches is longer than
one of one micro-batch by a pass; the rest is the update. Beside them stands what the estimate says (bench_ranks step).
T5's rows, which have an input and a target, are not compared. With --within the exit code is 1 where a figure is
further off: a test runs a few cases so (tests/trainer).
"""
import argparse
import json
import pathlib
import subprocess
import sys

from ranks_overlap import CONTEXT, FEW, LAYERS, MANY, ROWS, WIDTH, run_seconds

HEADS, VOCABULARY = 8, 256
CASES = [("gpt2", "sgd", "fp32"), ("gpt2", "adamw", "fp32"), ("gpt2", "adafactor", "fp32"),
         ("gpt2", "adamw8bit", "fp32"), ("gpt2", "adamw", "bf16-mixed"), ("gpt2", "adamw", "bf16"),
         ("gpt2", "adamw", "int8"), ("llama", "adamw", "fp32"), ("llama", "adamw", "bf16-mixed"),
         ("llama", "adamw8bit", "bf16")]


def step_seconds(options, case, micro_batches):
    family, optimizer, precision = case
    settings = [f"model.layers={options.layers}", f"model.family={family}", f"train.optimizer={optimizer}",
                f"train.precision={precision}", f"train.batch={ROWS * micro_batches}"]
    few, many = (run_seconds(options, 1, steps, True, settings) for steps in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def estimated(options, case):
    family, optimizer, precision = case
    sizes = map(str, (options.layers, WIDTH, HEADS, CONTEXT, VOCABULARY, ROWS, 1, 0))
    done = subprocess.run([options.build / "bin" / "bench_ranks", "step", family, *sizes, optimizer, precision],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--only", nargs="*", choices=[",".join(case) for case in CASES],
                        metavar="MODEL,OPTIMIZER,PRECISION")
    parser.add_argument("--within", type=float, nargs=2, metavar=("PASSES", "UPDATE"), help="percent")
    options = parser.parse_args()
    options.build, options.corpus = options.build.resolve(), options.corpus.resolve()
    print("| model, optimizer, precision | passes, ms | by the estimate | off | update, ms | by the estimate | off |")
    print("|---|---|---|---|---|---|---|")
    beyond = []
    for case in CASES:
        if options.only and ",".join(case) not in options.only:
            continue
        one, two = (step_seconds(options, case, count) for count in (1, 2))
        said = estimated(options, case)
        pairs = (two - one, said["passes"]), (2 * one - two, said["optimizer"])
        off = [100 * (there / here - 1) for here, there in pairs]
        columns = [f"{1e3 * here:.1f} | {1e3 * there:.1f} | {percent:+.1f}%"
                   for (here, there), percent in zip(pairs, off)]
        print(f"| {', '.join(case)} | {' | '.join(columns)} |", flush=True)
        if options.within and any(abs(percent) > most for percent, most in zip(off, options.within)):
            beyond.append(", ".join(case))
    if beyond:
        sys.exit(f"step_time.py: further off than {options.within}%: {'; '.join(beyond)}")


if __name__ == "__main__":
    main()
