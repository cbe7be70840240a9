"""techniques.py BUILD --corpus TEXT [--rounds N]: what each memory-saving technique saves and costs.

Trains a GPT-2 of 10.8 M parameters on a simulated card, whose kernels compute on one core of this machine: with nothing
special, with each technique, with combinations, and by Hugging Face's Trainer. Prints a table in Markdown: the most
bytes that were alive, and tokens a second, each beside those of the plain run of the same round. On a card the times
differ, the bytes do not: there the link to the host and the width of numbers matter more than on a processor.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from training import command_line, options_of, trained

CARD = ["--capacity", "8GiB", "--values", "compute"]
BATCH = 8
MODEL = ["model.layers=6", "model.width=384", "model.heads=6", "model.context=128", f"train.batch={BATCH}",
         "train.steps=10", "train.warmup=2", "evaluation.windows=1", "plan.evaluation_batch=1", "run.threads=1"]
HOST, ALL = "plan.optimizer=host", "plan.recompute=all"
BF16, INT8, HALF_ADAM = "train.precision=bf16-mixed", "train.precision=int8", "train.optimizer=adamw8bit"
TECHNIQUES = {
    "plain": [],
    "micro-batches of 2": ["plan.micro_batch=2"],
    "recompute every block": [ALL],
    "recompute MLPs": ["plan.recompute_mlp=all"],
    "recompute attentions": ["plan.recompute_attention=all"],
    "recompute in segments of 3": [ALL, "plan.recompute_segment=3"],
    "head in 4 chunks": ["plan.head_chunks=4"],
    "optimizer's states on the host": [HOST],
    "8-bit AdamW": [HALF_ADAM],
    "Adafactor": ["train.optimizer=adafactor"],
    "SGD with momentum": ["train.optimizer=sgd"],
    "bf16 mixed": [BF16],
    "fp16 mixed": ["train.precision=fp16-mixed"],
    "bf16 alone": ["train.precision=bf16"],
    "matrices in 8 bits": [INT8],
    "bf16 mixed, states on the host": [BF16, HOST],
    "bf16 alone, 8-bit AdamW, recompute": ["train.precision=bf16", HALF_ADAM, ALL],
    "matrices in 8 bits, 8-bit AdamW, recompute": [INT8, HALF_ADAM, ALL],
    "bf16 alone, Adafactor, recompute, micro-batches of 2": ["train.precision=bf16", "train.optimizer=adafactor", ALL,
                                                             "plan.micro_batch=2"],
}
TRAINERS = pathlib.Path(__file__).parents[2] / ".deps-trainers" / "bin" / "python"  # what tools/setup installs
OTHERS = "Hugging Face's Trainer, plain"


def ours(build, corpus, settings):
    """Tokens a second and the most bytes alive."""
    with trained(build, corpus, [*MODEL, *settings], CARD) as training:
        read = training.result
        return read["tokens_per_second"], read["devices"][0]["peak_live"]


def theirs(build, corpus):
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        command = [build / "bin" / "spillway", "simulate", *CARD, "--", TRAINERS,
                   pathlib.Path(__file__).with_name("hugging_face.py"), corpus, result]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        read = json.loads(result.read_text())
    return read["tokens_per_second"], read["peak"]


def measure(build, corpus, name):
    return theirs(build, corpus) if name == OTHERS else ours(build, corpus, TECHNIQUES[name])


def main():
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="some of the techniques")
    options = options_of(parser)
    names = ["plain", *(name for name in (options.only or [*TECHNIQUES, OTHERS]) if name != "plain")]
    rounds = [{name: measure(options.build, options.corpus, name) for name in names}
              for _ in range(options.rounds)]
    print("| technique | most bytes alive, MiB | of plain | tokens a second, of plain |\n|---|---|---|---|")
    for name in names:
        peak = rounds[0][name][1]
        speed = statistics.median(each[name][0] / each["plain"][0] for each in rounds)
        print(f"| {name} | {peak / 2**20:.1f} | {peak / rounds[0]['plain'][1]:.2f} | {speed:.2f} |")


if __name__ == "__main__":
    main()
