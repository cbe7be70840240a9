"""GPT-2 (124 M parameters) trained with bf16 autocast, AdamW and gradient clipping: the plainest training loop.

With --variable-length each batch has the length of its longest sample, so that no two steps ask for the same sizes.
"""
import random

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import common


def main():
    options = common.options(__doc__, layers=12, width=768, heads=12, vocabulary=50257, batch=8, length=1024,
                             variable_length=False)
    config = GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.heads,
                        vocab_size=options.vocabulary, n_positions=options.length)
    with torch.device("cuda"):
        model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lengths = random.Random(options.seed)
    progress = common.Progress()
    for step in range(options.steps):
        length = lengths.randint(options.length // 4, options.length) if options.variable_length else options.length
        tokens = torch.randint(options.vocabulary, (options.batch, length), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
