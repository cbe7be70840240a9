"""A generation whose keys and values grow by a token at a time, in a new tensor each time."""
import os
import time

import torch
from torch import nn

PAUSE = float(os.environ.get("SECONDS_A_STEP", 0))  # what the program waits for its data

LAYERS, BATCH, WIDTH = 4, 64, 1024

attend = [nn.Linear(WIDTH, 2 * WIDTH).cuda() for _ in range(LAYERS)]
cache = [torch.empty(0, BATCH, 2 * WIDTH, device="cuda") for _ in range(LAYERS)]
token = torch.randn(1, BATCH, WIDTH, device="cuda")
with torch.inference_mode():
    for _ in range(1000):
        time.sleep(PAUSE)
        for layer in range(LAYERS):
            keys_and_values = attend[layer](token)
            cache[layer] = torch.cat([cache[layer], keys_and_values])
