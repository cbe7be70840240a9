#!/usr/bin/env python3
"""values_gpt.py [STEPS [WIDTH]]: trains a small GPT of plain PyTorch on the card, the same way in every run, and prints
its losses and gradients' norms as exact hexadecimal numbers. Nothing in it knows of Spillway."""
import os
import pathlib
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS then gives the same bits each time
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/programs"))

import torch  # noqa: E402
from small_gpt import GPT, loss_of  # noqa: E402

LAYERS, VOCABULARY, LENGTH, BATCH = 2, 256, 64, 4


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    width = int(sys.argv[2]) if len(sys.argv) > 2 else 640
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.manual_seed(7)
    model = GPT(LAYERS, width, 4, VOCABULARY, LENGTH).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(3)).cuda()
    for _ in range(steps):
        loss = loss_of(model(tokens), tokens)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(loss.item().hex(), norm.item().hex())


if __name__ == "__main__":
    main()
