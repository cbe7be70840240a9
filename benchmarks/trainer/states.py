"""states.py BUILD --corpus TEXT [--rows N ...]: what a step costs whose states, gradients and weights are on the host.

Trains a GPT-2 of 1.0 billion parameters in bf16-mixed, every block recomputed, in null mode on the simulated card of
offload.py. Prints a table in Markdown: by rows of 1024 tokens a step, the most bytes that were alive, of those without
offload, the virtual milliseconds of a step, of those without, what the estimate says (bench_ranks step), and what is
copied a step, both ways. "Ahead": with slots for an MLP's tiles and a quarter more. "By the host": its processor
updates the layers, in time that the virtual clock does not count. With --within the exit code is 1 where the estimate
is further off: a test runs a smaller model so (tests/trainer).
"""
import json
import subprocess
import sys

from offload import AGAIN, measure
from training import command_line, options_of

CONTEXT, WORDS = 1024, 256
STATES, GRADIENTS, WEIGHTS = (f'plan.{what}="host"' for what in ("optimizer", "gradients", "parameters"))
JUST_IN_TIME, BY_THE_HOST = 'plan.update="just_in_time"', 'plan.update_on="host"'
EIGHT_BITS = "train.optimizer=adamw8bit"
TILE = 2**18  # numbers, of an update


def places(width):
    """Name, settings."""
    tiles = 2 * -(-4 * width * width // TILE) + 4  # of an MLP's matrices and vectors
    ahead = f"plan.update_slots={tiles * 5 // 4}"
    return {
        "nothing": [],
        "states": [STATES],
        "states, ahead": [STATES, JUST_IN_TIME, ahead],
        "states and gradients": [STATES, GRADIENTS],
        "states and gradients, just in time": [STATES, GRADIENTS, JUST_IN_TIME],
        "states and gradients, ahead": [STATES, GRADIENTS, JUST_IN_TIME, ahead],
        "states, gradients and weights": [STATES, GRADIENTS, WEIGHTS],
        "states, gradients and weights, ahead": [STATES, GRADIENTS, WEIGHTS, JUST_IN_TIME, ahead],
        "states, gradients and weights, by the host": [STATES, GRADIENTS, WEIGHTS, JUST_IN_TIME, BY_THE_HOST],
        "states of 8 bits and gradients": [EIGHT_BITS, STATES, GRADIENTS],
        "states of 8 bits and gradients, ahead": [EIGHT_BITS, STATES, GRADIENTS, JUST_IN_TIME, ahead],
    }


def estimated(options, settings):
    """Milliseconds of a step."""
    plan = "\n".join(each.removeprefix("plan.") for each in settings if each.startswith("plan."))
    optimizer = "adamw8bit" if EIGHT_BITS in settings else "adamw"
    sizes = options.layers, options.width, options.width // 128, CONTEXT, WORDS, options.batch, 1, 0
    done = subprocess.run([options.build / "bin" / "bench_ranks", "step", "gpt2", *map(str, sizes), optimizer,
                           "bf16-mixed", plan], capture_output=True, text=True, check=True)
    return 1e3 * json.loads(done.stdout)["seconds"]


def main():
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 32, 64], help="of a step (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--only", nargs="+", choices=[*places(128)], metavar="PLACE", help="and nothing else")
    parser.add_argument("--within", type=float, help="percent, of the estimate")
    options = options_of(parser)
    print("| rows a step | on the host | on the device, MiB | of all | ms of a step | of without | by the estimate "
          "| copied, MiB |\n|---:|---|---:|---:|---:|---:|---:|---:|")
    beyond = []
    for options.batch in options.rows:
        without = None
        for name, settings in places(options.width).items():
            if options.only and without and name not in options.only:
                continue
            settings = [f"model.layers={options.layers}", AGAIN, *settings]
            device, _, copied, milliseconds = measure(options, options.width, settings, "[]")
            without = without or (device, milliseconds)
            off = 100 * (estimated(options, settings) / milliseconds - 1)
            print(f"| {options.batch} | {name} | {device:.0f} | {device / without[0]:.2f} | {milliseconds:.1f} "
                  f"| {milliseconds / without[1]:.2f} | {off:+.1f} % | {copied:.0f} |", flush=True)
            if options.within and abs(off) > options.within:
                beyond.append(f"{name}, {options.batch} rows")
    if beyond:
        sys.exit(f"states.py: further off than {options.within}%: {'; '.join(beyond)}")


if __name__ == "__main__":
    main()
