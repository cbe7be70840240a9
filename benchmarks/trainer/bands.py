"""bands.py BUILD --corpus TEXT [--seeds N]: how far lossy techniques are from 32-bit floats, beside what the seed does.

Trains a GPT-2 of 0.9 M parameters for 300 steps on the corpus: with 32-bit floats and AdamW once a seed, and with each
technique for the same seeds. Prints, as a table in Markdown, the loss on the validation text: the mean over the seeds,
the difference from 32-bit floats of the same seed, and how far the losses of single steps are apart.
"""
import concurrent.futures
import re
import statistics

from training import command_line, options_of, trained

PLAIN = "fp32, adamw"
STEPS = 300
MODEL = ["model.layers=4", "model.width=128", "model.heads=4", "model.context=64", "train.batch=8",
         "train.warmup=20", f"train.steps={STEPS}", "train.learning_rate=2e-3", "train.minimum_learning_rate=2e-4",
         "evaluation.windows=128", "run.threads=1"]
TECHNIQUES = {  # precision, optimizer, and what else differs
    PLAIN: [],
    "bf16-mixed, adamw": ["train.precision=bf16-mixed"],
    "fp16-mixed, adamw": ["train.precision=fp16-mixed"],
    "bf16, adamw": ["train.precision=bf16"],
    "int8, adamw": ["train.precision=int8"],
    "fp32, adamw8bit": ["train.optimizer=adamw8bit"],
    "bf16, adamw8bit": ["train.precision=bf16", "train.optimizer=adamw8bit"],
    "int8, adamw8bit": ["train.precision=int8", "train.optimizer=adamw8bit"],
    "fp32, adafactor": ["train.optimizer=adafactor", "train.learning_rate=3e-2", "train.minimum_learning_rate=3e-3"],
    "bf16, adafactor": ["train.precision=bf16", "train.optimizer=adafactor", "train.learning_rate=3e-2",
                        "train.minimum_learning_rate=3e-3"],
    "fp32, sgd": ["train.optimizer=sgd", "train.learning_rate=0.3", "train.minimum_learning_rate=0.03"],
}


def losses_of(build, corpus, settings, seed):
    """The evaluation's loss and the loss of each step."""
    seeds = [f"train.seed={seed}", f"data.seed={seed}"]
    with trained(build, corpus, [*MODEL, *settings, *seeds], None) as training:
        losses = [float.fromhex(line.split()[1]) for line in
                  (training.folder / "losses.txt").read_text().splitlines() if re.match(r"\d", line)]
        assert len(losses) == STEPS
        return training.result["evaluation_loss"], losses


def main():
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=[*TECHNIQUES], help="some of the techniques")
    options = options_of(parser)
    seeds = range(1, options.seeds + 1)
    names = [name for name in TECHNIQUES if not options.only or name in [PLAIN, *options.only]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = {(name, seed): pool.submit(losses_of, options.build, options.corpus, settings, seed)
                for name, settings in TECHNIQUES.items() if name in names for seed in seeds}
    found = {key: run.result() for key, run in runs.items()}
    print(f"| precision, optimizer | loss, mean of {len(seeds)} seeds | from fp32 of the same seed | "
          "a step's loss, at most apart |\n|---|---|---|---|")
    for name in names:
        losses = [found[name, seed][0] for seed in seeds]
        if name == PLAIN:
            print(f"| {name} | {statistics.mean(losses):.4f} ({min(losses):.4f} to {max(losses):.4f}) | | |")
            continue
        apart = [found[name, seed][0] - found[PLAIN, seed][0] for seed in seeds]
        step = max(abs(a - b) for seed in seeds for a, b in zip(found[name, seed][1], found[PLAIN, seed][1]))
        print(f"| {name} | {statistics.mean(losses):.4f} | {min(apart):+.4f} to {max(apart):+.4f} | {step:.3f} |")


if __name__ == "__main__":
    main()
