"""An evaluation that runs out of GPU memory after a while, as many do: leaking.py, or leaking.py --mended.

It is the program of docs/reading-a-report.md."""
import sys

import torch

CLASSES, WIDTH, BATCH, BATCHES = 1000, 1024, 2048, 200


def make_network():
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()] * 3
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, CLASSES)).cuda().eval()


def batches():
    for _ in range(BATCHES):
        yield torch.randn(BATCH, WIDTH, device="cuda")


def evaluate(network, mended):
    predictions = []
    with torch.inference_mode():
        for images in batches():
            logits = network(images)
            predictions.append(logits.argmax(1) if mended else logits)
    return torch.cat(predictions)


if __name__ == "__main__":
    print("predictions:", tuple(evaluate(make_network(), "--mended" in sys.argv).shape))
