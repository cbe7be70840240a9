"""The trainer's ranks beside PyTorch's DistributedDataParallel and FSDP2, on the same model, weights and batches.

    others.py BUILD CORPUS

transformers makes a GPT-2 and saves it; two ranks of spillway-train begin with it, at each stage of ZeRO, and two
processes with it under DDP and under fully_shard, over Gloo. Losses must be within 1e-4 and gradient norms within 1e-3
at every step.
"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

import safetensors.torch
import torch
import torch.distributed as dist
import torch.multiprocessing
import transformers
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "transformers"))
import compare  # noqa: E402

RANKS, STEPS, WAYS = 2, 20, ("ddp", "fsdp2")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def in_layers(model):
    for layer in model.transformer.h:
        fully_shard(layer)
    return fully_shard(model)


def whole(number):
    return number.full_tensor() if hasattr(number, "full_tensor") else number


def train_beside(rank, port, folder):
    torch.set_num_threads(1)
    compare.STEPS = STEPS
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    for way in WAYS:
        lines = trained(rank, folder, way)
        if rank == 0:
            (folder / way).write_text("\n".join(lines))
    dist.destroy_process_group()
    os._exit(0)  # an interpreter that ends meets threads of PyTorch that still run, now and then, and aborts


def trained(rank, folder, way):
    """The loss and the gradient norm of each step."""
    plain = transformers.GPT2LMHeadModel.from_pretrained(folder / "from").eval()
    model = torch.nn.parallel.DistributedDataParallel(plain) if way == "ddp" else in_layers(plain)
    inside = model.module if way == "ddp" else model
    train = compare.TRAIN
    optimizer = compare.optimizer_of("adamw", [
        {"params": [p for p in inside.parameters() if p.dim() >= 2], "weight_decay": train["weight_decay"]},
        {"params": [p for p in inside.parameters() if p.dim() < 2], "weight_decay": 0.0}], train)
    lines = []
    for step, rows in enumerate(safetensors.torch.load_file(folder / "seen.safetensors")["rows"]):
        for group in optimizer.param_groups:
            group["lr"] = compare.rate_at(step, train)
        optimizer.zero_grad()
        mine = rows.chunk(RANKS)[rank]
        logits = model(input_ids=mine[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), mine[:, 1:].flatten())
        loss.backward()
        norm = whole(torch.nn.utils.clip_grad_norm_(inside.parameters(), train["clip"]))
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        lines.append(f"{mean.item() / RANKS} {norm.item()}")
    return lines


class Beside(unittest.TestCase):
    build = corpus = None

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        torch.manual_seed(5)
        compare.STEPS = STEPS
        compare.gpt2().save_pretrained(self.folder / "from")
        compare.write_config(self.folder / "config.toml", self.folder, self.corpus, "adamw", compare.TRAIN,
                             {"micro_batch": 1})
        subprocess.run([self.build / "bin" / "reference_dump", self.folder / "config.toml",
                        self.folder / "seen.safetensors"], check=True)

    def ours(self, zero):
        port = str(free_port())
        words = [self.build / "bin" / "spillway-train", "--config", self.folder / "config.toml", "--quiet", "--set",
                 f"run.zero={zero}", "--set", f"run.out={self.folder / f'zero-{zero}'}", "--set", "run.threads=1"]
        ranks = [subprocess.Popen(words, stdout=subprocess.DEVNULL, env={
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank in range(RANKS)]
        self.assertEqual([rank.wait(120) for rank in ranks], [0] * RANKS)
        lines = (self.folder / f"zero-{zero}" / "losses.txt").read_text().splitlines()
        return [[float.fromhex(number) for number in line.split()[1:3]] for line in lines if line[0].isdigit()]

    def test_losses_and_norms(self):
        ours = self.ours(1)
        self.assertEqual(ours, self.ours(0))
        self.assertEqual(len(ours), STEPS)
        shared = self.ours(2)  # adds up each micro-batch over the ranks
        self.assertEqual(shared, self.ours(3))
        torch.multiprocessing.spawn(train_beside, (free_port(), self.folder), nprocs=RANKS)
        for way in WAYS:
            theirs = [[float(number) for number in line.split()]
                      for line in (self.folder / way).read_text().splitlines()]
            for zero, losses in (1, ours), (3, shared):
                apart = [max(abs(a[i] - b[i]) / b[i] for a, b in zip(losses, theirs)) for i in range(2)]
                print(f"{way}, stage {zero}: losses {apart[0]:.1e}, norms {apart[1]:.1e} apart", flush=True)
                self.assertLess(apart[0], 1e-4)
                self.assertLess(apart[1], 1e-3)
        self.assertLess(ours[-1][0], 0.9 * ours[0][0], "it learns")


if __name__ == "__main__":
    Beside.corpus, Beside.build = (pathlib.Path(sys.argv.pop(at)).resolve() for at in (2, 1))
    transformers.utils.logging.disable_progress_bar()
    unittest.main()
