"""A stock training loop: Hugging Face GPT-2 from its configuration, bf16 autocast, AdamW, gradient clipping.

    gpt2_training.py [--layers N] [--width N] [--heads N] [--vocabulary N] [--batch N] [--length N] [--steps N]

Prints the peak of allocated and reserved device memory in bytes and the host time of a step. Knows nothing of
Spillway.
"""
import argparse
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def arguments():
    parser = argparse.ArgumentParser()
    for name, default in [("layers", 2), ("width", 64), ("heads", 2), ("vocabulary", 512), ("batch", 2),
                          ("length", 64), ("steps", 3)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def train(options, device="cuda"):
    torch.manual_seed(0)
    config = GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.heads,
                        vocab_size=options.vocabulary, n_positions=options.length)
    model = GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(device, enabled=False)
    start = time.monotonic()
    for step in range(options.steps):
        if step == 1:
            start = time.monotonic()
        tokens = torch.randint(options.vocabulary, (options.batch, options.length), device=device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return (time.monotonic() - start) / max(1, options.steps - 1)


if __name__ == "__main__":
    seconds = train(arguments())
    print(f"peak_allocated={torch.cuda.max_memory_allocated()}")
    print(f"peak_reserved={torch.cuda.max_memory_reserved()}")
    print(f"step_ms={seconds * 1e3:.1f}")
