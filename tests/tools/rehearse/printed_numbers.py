"""Reads numbers from the device that nobody computed, and does with them what the argument says."""
import copy
import json
import math
import pickle
import sys

import numpy
import torch

loss = torch.rand(4, device="cuda").sum()  # what the host wrote, or what follows from it, would be known


def log():
    value = loss.item()
    total = 0.0
    for _ in range(3):
        total += value
    mean = sum([value, value]) / 2 + math.exp(value) + math.fsum([value])
    print(f"{value:.3f} {total:8.2f} {mean}", round(mean, 3), "%.4g" % -value, str(value), json.dumps({"loss": value}))
    print(loss, repr(loss.detach()), f"{loss:.4f}")
    assert isinstance(copy.deepcopy([value])[0], float) and copy.copy(value) is value
    assert type(value + 1).__name__ == "float" and isinstance(value, float)


BRANCHES = {
    "compared": lambda value: value < 5,
    "derived": lambda value: max(round(math.sqrt(abs(2 * value + 1) / 3), 2), 7.0),
    "summed": lambda value: sum([value, value]) == 1,
    "taken_as_true": lambda value: not value,
    "made_whole": lambda value: int(value),
    "rounded": lambda value: round(value),
    "made_plain": lambda value: float(value),
    "looked_up": lambda value: {1.0: 2}.get(value),
    "numpy": lambda value: numpy.mean([value, value]),
    "pickled": lambda value: pickle.dumps(value),
    "tensor": lambda value: torch.tensor([value, 1.0]),
}
if sys.argv[1] == "log":
    log()
else:
    BRANCHES[sys.argv[1]](loss.item())
