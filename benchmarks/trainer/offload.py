"""offload.py BUILD --corpus TEXT [--width N ...]: what activations on the host save and cost, on the virtual clock.

Trains a GPT-2 in bf16-mixed on a simulated card whose kernels take time (an A100's, by its data sheet) and whose driver
and links are those of the profile `typical` (25 GB/s each way). Prints a table in Markdown: the most bytes that were
alive, the host's, those that cross the link in a step each way, the virtual milliseconds of a step, and that beside
the same training without `plan.offload`. The first steps make the host's memory; they are not counted.
"""
import re

from training import TIMED, command_line, options_of, trained

LAYERS, BEFORE, STEPS = 8, 2, 2
AGAIN = 'plan.recompute="all"'
ROWS = [  # name, settings, the layers whose activations go to the host
    ("plain", [], "[]"),
    ("one layer of 8 on the host", [], "[0]"),
    ("two layers of 8 on the host", [], "[0, 1]"),
    ("every fourth layer on the host", [], "[0, 4]"),
    ("four layers of 8 on the host", [], "[0, 1, 2, 3]"),
    ("every layer on the host", [], '"all"'),
    ("recompute every block", [AGAIN], "[]"),
    ("recompute every block, inputs on the host", [AGAIN], '"all"'),
]


def run(options, width, settings, offload, steps):
    """Bytes alive at most, the host's bytes, bytes copied, virtual nanoseconds."""
    chosen = [f"model.layers={LAYERS}", f"model.width={width}", f"model.heads={width // 128}", "model.context=1024",
              f"train.batch={options.batch}", f"train.steps={steps}", "train.warmup=1", "train.precision=bf16-mixed",
              "evaluation.windows=1", "plan.evaluation_batch=1", f"plan.offload={offload}", *settings]
    with trained(options.build, options.corpus, chosen, ["--capacity", "1024GiB", *TIMED]) as training:
        host = re.search(r"host +activations +([\d.]+) MiB", training.output)
        counters = training.counters
        return (training.result["devices"][0]["peak_live"], float(host[1]) if host else 0.0, counters["copied_bytes"],
                counters["virtual_ns"])


def measure(options, width, settings, offload):
    """MiB alive at most, MiB of the host, MiB copied in a step, virtual milliseconds of a step."""
    few, many = (run(options, width, settings, offload, steps) for steps in (BEFORE, BEFORE + STEPS))
    return many[0] / 2**20, many[1], (many[2] - few[2]) / STEPS / 2**20, (many[3] - few[3]) / STEPS / 1e6


def main():
    parser = command_line(__doc__)
    parser.add_argument("--width", type=int, nargs="+", default=[2048], help="of the model (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=4, help="rows of 1024 tokens a step (default: %(default)s)")
    options = options_of(parser)
    print("| width | activations | on the device, MiB | on the host, MiB | over the link a step, each way, MiB "
          "| ms of a step | of without |\n|---:|---|---:|---:|---:|---:|---:|")
    for width in options.width:
        without = None  # of the same training
        for name, settings, offload in ROWS:
            device, host, copied, milliseconds = measure(options, width, settings, offload)
            if offload == "[]":
                without = copied, milliseconds
            print(f"| {width} | {name} | {device:.0f} | {host:.0f} | {(copied - without[0]) / 2:.0f} "
                  f"| {milliseconds:.1f} | {milliseconds / without[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
