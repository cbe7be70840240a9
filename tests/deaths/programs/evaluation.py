"""An evaluation that keeps the logits of all batches on the card: evaluation.py, or evaluation.py --mended."""
import os
import sys
import time

import torch
from torch import nn

PAUSE = float(os.environ.get("SECONDS_A_STEP", 0))  # what the program waits for its data

network = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1000)).cuda().eval()
predictions = []
with torch.inference_mode():
    for _ in range(100):
        time.sleep(PAUSE)
        logits = network(torch.randn(1024, 1024, device="cuda"))
        predictions.append(logits.argmax(1) if "--mended" in sys.argv else logits)
