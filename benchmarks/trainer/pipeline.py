"""pipeline.py BUILD --corpus TEXT: the time of a step on several cards, by the micro-batches that are under way.

Trains a GPT-2 of 16 layers, width 1024, 8 micro-batches of 4 rows of 1,024 tokens, on simulated cards that compute
nothing but take time (the profiles `typical` and `timed-kernels`; launches are the simulated driver's). Prints a table
in Markdown: virtual milliseconds of a step, beside one micro-batch after the other, the share of the time in which the
cards compute, and what the estimate of the same step says. The share is what one card takes for the step, by the number
of cards, of what they take together. Times are of the virtual clock: they repeat, and say nothing of a real link's
latency.
"""
from training import TIMED, command_line, options_of, trained

MODEL = ["model.layers=16", "model.width=1024", "model.heads=16", "model.context=1024", "model.vocabulary=32768",
         "train.batch=32", "plan.micro_batch=4", "plan.evaluation_batch=1", "evaluation.windows=1", "run.threads=1",
         "data.workers=0"]
FEW, MORE = 2, 5  # steps; the difference of two runs is of the steps alone


def virtual_ms(build, corpus, cards, settings, steps):
    """Of a whole run."""
    simulate = ["--gpu", "a100-80gb", "--gpus", cards, *TIMED]
    with trained(build, corpus, [*MODEL, *settings, f"train.steps={steps}"], simulate) as training:
        return training.counters["virtual_ns"] / 1e6


def step_ms(build, corpus, cards, settings):
    few, more = (virtual_ms(build, corpus, cards, settings, steps) for steps in (FEW, MORE))
    return (more - few) / (MORE - FEW)


def main():
    parser = command_line(__doc__)
    parser.add_argument("--cards", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--pipelines", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--devices", default="balanced_time", help="how layers are spread")
    options = options_of(parser)
    build, corpus = options.build, options.corpus
    one = step_ms(build, corpus, 1, [])
    print(f"one card: {one:.1f} ms\n\n| cards | under way | ms a step | of one after the other | cards busy |")
    print("|---|---|---|---|---|")
    for cards in options.cards:
        in_turn = None
        for pipeline in options.pipelines:
            took = step_ms(build, corpus, cards, [f"plan.devices={options.devices}", f"plan.pipeline={pipeline}"])
            in_turn = in_turn or took
            print(f"| {cards} | {pipeline} | {took:.1f} | {took / in_turn:.2f} | {one / (cards * took):.0%} |",
                  flush=True)


if __name__ == "__main__":
    main()
