"""What each of these programs takes on its command line."""
import argparse
import random

import numpy
import torch


class Options:
    """--batch N, --device NAME and --tiny, which makes the program small enough for a CPU to compute it."""

    def __init__(self, batch):
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch", type=int, default=batch)
        parser.add_argument("--device", default="cuda")
        parser.add_argument("--tiny", action="store_true")
        arguments = parser.parse_args()
        self.device = torch.device(arguments.device)
        self.tiny = arguments.tiny
        self.batch = 2 if self.tiny else arguments.batch
        random.seed(1)
        numpy.random.seed(1)
        torch.manual_seed(1)

    def size(self, tiny, real):
        return tiny if self.tiny else real


def tell(step, loss):
    print(f"step {step} loss {loss.item():.4f}", flush=True)


def train(trainer):
    """Of Transformers' kind; its losses as lines."""
    trainer.train()
    for entry in trainer.state.log_history:
        print(" ".join(f"{name} {float(entry[name]):.3f}" for name in ("loss", "eval_loss", "eval_accuracy")
                       if name in entry), flush=True)
