"""step_time.py BUILD --corpus TEXT [--within PASSES UPDATE]: a step of one process, measured and by the estimate.

Trains on a simulated card as ranks_overlap.py does: virtual time, no values. A step of two micro-batches is longer than
one of one micro-batch by a pass; the rest is the update. Beside them stands what the estimate says (bench_ranks step).
T5's rows, which have an input and a target, are not compared. With --within the exit code is 1 where a figure is
further off: a test runs a few cases so (tests/trainer).
"""
import sys

from ranks_overlap import LAYERS, ROWS, estimated, step_seconds
from training import command_line, options_of

CASES = [("gpt2", "sgd", "fp32"), ("gpt2", "adamw", "fp32"), ("gpt2", "adafactor", "fp32"),
         ("gpt2", "adamw8bit", "fp32"), ("gpt2", "adamw", "bf16-mixed"), ("gpt2", "adamw", "bf16"),
         ("gpt2", "adamw", "int8"), ("llama", "adamw", "fp32"), ("llama", "adamw", "bf16-mixed"),
         ("llama", "adamw8bit", "bf16")]


def step_of(options, case, micro_batches):
    family, optimizer, precision = case
    return step_seconds(options, 1, True, [
        f"model.layers={options.layers}", f"model.family={family}", f"train.optimizer={optimizer}",
        f"train.precision={precision}", f"train.batch={ROWS * micro_batches}"])


def main():
    parser = command_line(__doc__)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--only", nargs="*", choices=[",".join(case) for case in CASES],
                        metavar="MODEL,OPTIMIZER,PRECISION")
    parser.add_argument("--within", type=float, nargs=2, metavar=("PASSES", "UPDATE"), help="percent")
    options = options_of(parser)
    print("| model, optimizer, precision | passes, ms | by the estimate | off | update, ms | by the estimate | off |")
    print("|---|---|---|---|---|---|---|")
    beyond = []
    for case in CASES:
        if options.only and ",".join(case) not in options.only:
            continue
        one, two = (step_of(options, case, count) for count in (1, 2))
        said = estimated(options, case[0], options.layers, 1, 0, case[1:])
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
