"""states.py BUILD --corpus TEXT [--rows N ...]: what a step costs whose states, gradients and weights are on the host.

Trains a GPT-2 of 1.0 billion parameters in bf16-mixed, every block recomputed, in null mode on the simulated card of
offload.py. Prints a table in Markdown: by rows of 1024 tokens a step, the most bytes that were alive, of those without
offload, and the virtual milliseconds of a step, of those without.
"""
import argparse
import pathlib

from offload import AGAIN, measure

MODEL = ["model.layers=24", AGAIN]
WIDTH = 1920
STATES, GRADIENTS, WEIGHTS = (f'plan.{what}="host"' for what in ("optimizer", "gradients", "parameters"))
JUST_IN_TIME, EIGHT_BITS = 'plan.update="just_in_time"', "train.optimizer=adamw8bit"
PLACES = [  # name, settings
    ("nothing", []),
    ("states", [STATES]),
    ("states and gradients", [STATES, GRADIENTS]),
    ("the same, just in time", [STATES, GRADIENTS, JUST_IN_TIME]),
    ("states, gradients and weights", [STATES, GRADIENTS, WEIGHTS]),
    ("states of 8 bits and gradients", [EIGHT_BITS, STATES, GRADIENTS]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 32, 64], help="of a step (default: %(default)s)")
    options = parser.parse_args()
    options.build, options.corpus = options.build.resolve(), options.corpus.resolve()
    if not (options.build / "bin" / "spillway-train").exists():
        parser.error(f"there is no build in '{options.build}': tools/test --quick makes one in build")
    print("| rows a step | on the host | on the device, MiB | of all | ms of a step | of without |\n"
          "|---:|---|---:|---:|---:|---:|")
    for options.batch in options.rows:
        without = None
        for name, settings in PLACES:
            device, _, _, milliseconds = measure(options, WIDTH, MODEL + settings, "[]")
            without = without or (device, milliseconds)
            print(f"| {options.batch} | {name} | {device:.0f} | {device / without[0]:.2f} | {milliseconds:.1f} "
                  f"| {milliseconds / without[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
