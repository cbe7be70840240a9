"""overlap.py BUILD --corpus TEXT: how much of the copies of layers on the host is hidden behind the computation.

Trains on a simulated card whose driver calls, copies and operators take time (profiles `typical` and
`timed-kernels`), without values. What a micro-batch takes is the difference of steps with many and with few of
them, so that the update is left out. A line for each place of the layers and each size of a micro-batch: what the
computation takes alone, what its copies take at the link's speed in the direction that takes longer, what both
take, and the share of the shorter of the two that is hidden.
"""
from training import TIMED, command_line, options_of, trained

LAYERS, WIDTH, CONTEXT, STEPS, FEW, MANY = 8, 512, 256, 2, 3, 9
SIZES = [f"model.layers={LAYERS}", f"model.width={WIDTH}", "model.heads=8", f"model.context={CONTEXT}",
         f"train.steps={STEPS}", "evaluation.windows=1", "plan.evaluation_batch=1"]
PLACES = {"on the card": [], "weights": ['plan.parameters="host"'], "gradients": ['plan.gradients="host"'],
          "both": ['plan.parameters="host"', 'plan.gradients="host"']}
LINK = 25e9  # of the simulated card, each way


def simulated(build, corpus, settings):
    """The simulator's counters of a whole run."""
    card = ["--capacity", "60GiB", "--values", "zeros", *TIMED]
    with trained(build, corpus, [*SIZES, *settings], card) as training:
        return training.counters


def micro_batch(build, corpus, rows, place):
    """Seconds of one, and of its copies alone."""
    def run(count):
        batch = [f"plan.micro_batch={rows}", f"train.batch={rows * count}"]
        return simulated(build, corpus, batch + PLACES[place])
    few, many = run(FEW), run(MANY)

    def of_one(counter):
        return (many[counter] - few[counter]) / STEPS / (MANY - FEW)
    return of_one("virtual_ns") / 1e9, max(of_one("to_device_bytes"), of_one("to_host_bytes")) / LINK


def arguments(description):
    parser = command_line(description)
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 32, 96], help="sequences of a micro-batch")
    options = options_of(parser)
    return options.build, options.corpus, options.rows


def main():
    build, corpus, all_rows = arguments(__doc__)
    for rows in all_rows:
        alone, _ = micro_batch(build, corpus, rows, "on the card")
        for place in list(PLACES)[1:]:
            taken, copies = micro_batch(build, corpus, rows, place)
            hidden = (alone + copies - taken) / min(alone, copies)
            print(f"{rows:4} sequences, {place:10} computation {1e3 * alone:7.3f} ms, copies {1e3 * copies:7.3f} ms, "
                  f"together {1e3 * taken:7.3f} ms: {100 * hidden:5.1f} % hidden", flush=True)


if __name__ == "__main__":
    main()
