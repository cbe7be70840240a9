"""pipeline.py BUILD --corpus TEXT: the time of a step on several cards, by the micro-batches that are under way.

Trains a GPT-2 of 16 layers, width 1024, 8 micro-batches of 4 rows of 1,024 tokens, on simulated cards that compute
nothing but take time (the profiles `typical` and `timed-kernels`; launches are the simulated driver's). Prints a table
in Markdown: virtual milliseconds of a step, beside one micro-batch after the other, the share of the time in which the
cards compute, and what the estimate of the same step says. The share is what one card takes for the step, by the number
of cards, of what they take together. Times are of the virtual clock: they repeat, and say nothing of a real link's
latency.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MODEL = ["model.layers=16", "model.width=1024", "model.heads=16", "model.context=1024", "model.vocabulary=32768",
         "train.batch=32", "plan.micro_batch=4", "plan.evaluation_batch=1", "evaluation.windows=1", "run.threads=1",
         "data.workers=0"]
FEW, MORE = 2, 5  # steps; the difference of two runs is of the steps alone


def virtual_ms(build, corpus, cards, settings, steps):
    """Of a whole run."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [build / "bin" / "spillway", "simulate", "--gpu", "a100-80gb", "--gpus", str(cards), "--profile",
                   "typical,timed-kernels", "--", build / "bin" / "spillway-train", "--config", "configs/tiny.toml",
                   "--device", "cuda", "--quiet"]
        for each in [*MODEL, *settings, f"train.steps={steps}", f"run.out={folder}", f"data.corpus={corpus}"]:
            command += ["--set", each]
        done = subprocess.run(command, capture_output=True, text=True, cwd=pathlib.Path(__file__).parents[2],
                              env={**os.environ, "SPILLWAY_SIM_REPORT": str(report)})
        if done.returncode != 0:
            sys.exit(f"{' '.join(settings)}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return json.loads(report.read_text())["counters"]["virtual_ns"] / 1e6


def step_ms(build, corpus, cards, settings):
    few, more = (virtual_ms(build, corpus, cards, settings, steps) for steps in (FEW, MORE))
    return (more - few) / (MORE - FEW)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--cards", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--pipelines", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--devices", default="balanced_time", help="how layers are spread")
    options = parser.parse_args()
    build, corpus = options.build.resolve(), options.corpus.resolve()
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
