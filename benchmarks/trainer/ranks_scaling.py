"""ranks_scaling.py BUILD --corpus TEXT [--ranks 1 2 4 8 16] [--zero STAGE ...] [--rows 32] [--within PERCENT]

Compares a step of several ranks, measured, with the estimate. Trains on simulated cards as ranks_overlap.py does. What
a step is longer than that of one process is what ranks add. Then come the estimate's figures (bench_ranks) for up to
1,024 ranks, which nothing here can measure. With --within it is a test of the first tables: the exit code is 1 where a
step is further off.
"""
import subprocess
import sys

from ranks_overlap import LAYERS, ROWS, estimated, step_seconds
from training import command_line, options_of


def main():
    parser = command_line(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--zero", type=int, nargs="+", default=[0], help="stages of ZeRO, a table each")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--rows", type=int, default=ROWS, help="sequences of a rank")
    parser.add_argument("--within", type=float, help="percent")
    options = options_of(parser)
    furthest = max(table(options, stage) for stage in options.zero)
    if options.within is None:
        subprocess.run([options.build / "bin" / "bench_ranks", "table"], check=True)
    elif furthest > options.within:
        sys.exit(f"ranks_scaling.py: {furthest:.1f}% off, more than {options.within}%")


def table(options, stage):
    """Prints that of a stage; how far the furthest is off, in percent."""
    print(f"\nStage {stage}:\n")
    print("| ranks | step, ms | by the estimate | off | ranks add, ms | exchange that shows, by the estimate |")
    print("|---|---|---|---|---|---|")
    alone, furthest = None, 0
    for ranks in options.ranks:
        zero = stage if ranks > 1 else 0
        sizes = [f"model.layers={options.layers}", f"run.zero={zero}", f"train.batch={options.rows * ranks}",
                 f"plan.micro_batch={options.rows}"]
        measured = step_seconds(options, ranks, True, sizes)
        said = estimated(options, "gpt2", options.layers, ranks, zero, ("sgd", "fp32"), options.rows)
        alone = measured if ranks == 1 else alone
        added = f"{1e3 * (measured - alone):.2f}" if alone else "?"
        furthest = max(furthest, abs(100 * (said["seconds"] / measured - 1)))
        print(f"| {ranks} | {1e3 * measured:.1f} | {1e3 * said['seconds']:.1f} | "
              f"{100 * (said['seconds'] / measured - 1):+.1f}% | {added} | "
              f"{1e3 * said['shown']:.2f} |", flush=True)
    return furthest


if __name__ == "__main__":
    main()
