"""estimates.py BUILD --corpus TEXT [--all] [--only MODEL] [--most PERCENT]: estimated peaks beside measured ones.

Each pair of a model and a plan is trained for two steps on simulated cards, whose kernels do nothing. Without --all a
model meets every third plan, and a plan every third model. Prints a line a pair, and the largest difference; fails
where one is above the bar.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = ["model.layers=4", "model.width=256", "model.heads=4", "model.context=256", "train.batch=8"]
MODELS = {
    "gpt2": [],
    "gpt2, dropout": ["model.dropout=0.1"],
    "gpt2, more positions than tokens": ["model.positions=1024"],
    "gpt2, 8192 words": ["model.vocabulary=8192"],
    "gpt2, 8192 words, own head": ["model.vocabulary=8192", "model.tied_head=false"],
    "gpt2, more words than tokens": ["model.vocabulary=16384", "model.context=48"],
    "t5, more words than tokens": ["model.family=t5", "model.vocabulary=16384", "model.context=48"],
    "llama": ["model.family=llama"],
    "llama, 2 keys, 8192 words": ["model.family=llama", "model.key_value_heads=2", "model.vocabulary=8192"],
    "llama, 1 key, tied": ["model.family=llama", "model.key_value_heads=1", "model.tied_head=true"],
    "t5": ["model.family=t5"],
    "t5, gated, own head": ["model.family=t5", "model.gated=true", "model.tied_head=false", "model.vocabulary=8192"],
    "t5, dropout, long": ["model.family=t5", "model.dropout=0.1", "model.context=384", "train.batch=4"],
    "gpt2, 8192 words, bf16-mixed": ["model.vocabulary=8192", "train.precision=bf16-mixed"],
    "llama, fp16-mixed, adafactor": ["model.family=llama", "model.key_value_heads=2", "train.precision=fp16-mixed",
                                     "train.optimizer=adafactor"],
    "t5, dropout, bf16, adamw8bit": ["model.family=t5", "model.dropout=0.1", "train.precision=bf16",
                                     "train.optimizer=adamw8bit"],
    "t5, pairs": ["model.family=t5", "model.context=320", "model.target=96"],
    "t5, pairs, dropout, bf16": ["model.family=t5", "model.context=96", "model.target=160", "model.dropout=0.1",
                                 "model.vocabulary=8192", "train.precision=bf16"],
    "gpt2, adamw8bit": ["train.optimizer=adamw8bit"],
    "llama, int8, adamw8bit": ["model.family=llama", "train.precision=int8", "train.optimizer=adamw8bit"],
    "gpt2, int8": ["train.precision=int8"],
}
PLANS = {
    "micro-batch 1": ["plan.micro_batch=1"],
    "micro-batch 4": ["plan.micro_batch=4"],
    "micro-batch 8": ["plan.micro_batch=8"],
    "recompute, 8": ["plan.micro_batch=8", 'plan.recompute="all"'],
    "recompute of two, 4": ["plan.micro_batch=4", "plan.recompute=2"],
    "host, 2": ["plan.micro_batch=2", 'plan.optimizer="host"'],
    "two cards, 4": ["plan.micro_batch=4", "plan.devices=[0,0,1,1]"],
    "two cards, all recomputed": ["plan.micro_batch=8", "plan.devices=[0,0,1,1]", 'plan.recompute="all"'],
    "two cards, 8 under way": ["plan.micro_batch=1", 'plan.devices="even"', "plan.pipeline=8"],
    "recompute of MLPs, 8": ["plan.micro_batch=8", 'plan.recompute_mlp="all"'],
    "recompute of attention, 8": ["plan.micro_batch=8", 'plan.recompute_attention="all"', "plan.recompute_mlp=[1]"],
    "segments of 3 of 9 layers, 8": ["model.layers=9", "plan.micro_batch=8", 'plan.recompute="all"',
                                     "plan.recompute_segment=3", "plan.head_chunks=8"],
    "activations on the host, 8": ["plan.micro_batch=8", 'plan.offload="all"', "train.offload_least_bytes=65536"],
    "activations on a disk, 4": ["model.layers=8", "plan.micro_batch=4", 'plan.offload="all"',
                                 'plan.offload_to="nvme"', "run.nvme_least=0", "train.offload_least_bytes=65536"],
    "two layers on the host, 4": ["plan.micro_batch=4", "plan.offload=[0, 2]", "plan.recompute=[2]",
                                  "plan.recompute_mlp=[0, 1]", "plan.devices=[0,0,1,1]"],
    "layers elsewhere, 2": ["model.layers=6", "plan.micro_batch=2", 'plan.parameters="host"',
                              'plan.gradients="nvme"', "run.nvme_least=0", 'plan.optimizer="host"'],
    "states ahead, 4": ["plan.micro_batch=4", 'plan.optimizer="host"', 'plan.gradients="host"',
                        'plan.update="just_in_time"', "plan.update_slots=20"],
    "layers in 4 tiles, 2": ["model.layers=3", "model.hidden=4096", "plan.micro_batch=2", "plan.tiles=4",
                             'plan.parameters="host"', 'plan.gradients="host"', 'plan.optimizer="host"'],
    "states, activations on a peer, 4": ["plan.micro_batch=4", 'plan.optimizer="peer"', 'plan.offload="all"',
                                         'plan.offload_to="peer"', "train.offload_least_bytes=65536"],
    "layers on a peer, 2": ["model.layers=6", "plan.micro_batch=2", 'plan.parameters="peer"', 'plan.gradients="peer"',
                            "plan.recompute=3"],
    "head in 6 chunks, 8": ["plan.micro_batch=8", "plan.head_chunks=6", 'plan.recompute="all"'],
}


def goes_with(model, plan):
    """Tiles are for updates that need no whole row or column."""
    return "tiles" not in plan or not ("int8" in model or "adafactor" in model)


def pairs_of(corpus, folder):
    """A file of pairs: a line of the text, and its end."""
    lines = [line for line in corpus.read_text().splitlines() if 20 < len(line) < 90 and line.isascii()][:200]
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[-20:]}\n" for line in lines))
    made = folder / "pairs.safetensors"
    command = [sys.executable, "-m", "spillway.tokenize", folder / "pairs.tsv", "--pairs", "--bytes", "--out", made]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return made


def start(build):
    """A process that trains: LibTorch's start takes as long as a training does."""
    command = [build / "bin" / "spillway", "simulate", "--capacity", "16GiB", "--values", "zeros", "--gpus", "2", "--",
               build / "bin" / "train_each"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def run(process, corpus, settings, folder):
    """Estimated and measured peak of each card in use, in MiB."""
    options = [*SIZES, *settings, "train.steps=2", "evaluation.windows=1", "plan.evaluation_batch=1",
               'run.device="cuda"', f"run.out={folder}", f"data.corpus={corpus}"]
    print(folder, *options, sep="\t", file=process.stdin, flush=True)
    answer, output = process.stdout.readline().strip(), folder / "output"
    said = output.read_text() if output.exists() else ""
    if answer != "0":
        sys.exit(f"{' '.join(settings)}: {answer or 'no answer'}: {said[-3000:]}")
    estimated = [float(peak) for peak in re.findall(r"device \d+ +peak +([\d.]+) MiB", said)]
    measured = [device["peak_live"] / 2**20 for device in json.loads((folder / "result.json").read_text())["devices"]]
    return [(one, other) for one, other in zip(estimated, measured) if other > 1]


def compare(free, corpus, pairs, names):
    model, plan = names
    process = free.get()
    try:
        with tempfile.TemporaryDirectory() as folder:
            read = pairs if "pairs" in model else corpus
            return run(process, read, MODELS[model] + PLANS[plan], pathlib.Path(folder))
    finally:
        free.put(process)  # after a failure, too: others wait for it


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--all", action="store_true", help="every model with every plan, not a third of the pairs")
    parser.add_argument("--only", default="", help="models whose name has this, with every plan")
    parser.add_argument("--most", type=float, default=5.0, help="per cent that an estimate may be off")
    options = parser.parse_args()
    pairs = [(model, plan) for i, model in enumerate(MODELS) for j, plan in enumerate(PLANS)
             if options.only in model and goes_with(model, plan) and (options.all or options.only or (i + j) % 3 == 0)]
    worst = 0.0
    processes = [start(options.build.resolve()) for _ in range(2)]
    free = queue.SimpleQueue()
    for process in processes:
        free.put(process)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        made = pairs_of(options.corpus, pathlib.Path(folder))
        found = pool.map(lambda names: compare(free, options.corpus.resolve(), made, names), pairs)
        for (model, plan), peaks in zip(pairs, found):
            off = [100 * (estimated / measured - 1) for estimated, measured in peaks]
            worst = max(worst, *(abs(each) for each in off))
            print(f"{model:28} {plan:28} " + "   ".join(
                f"{estimated:7.1f} of {measured:7.1f} MiB {each:+5.1f} %"
                for (estimated, measured), each in zip(peaks, off)), flush=True)
    for process in processes:
        process.communicate()
    print(f"{len(pairs)} pairs, at most {worst:.1f} % off")
    return worst > options.most


if __name__ == "__main__":
    sys.exit(main())
