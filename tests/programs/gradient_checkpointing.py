"""GPT-2 XL (1.5 B parameters) in bf16 with gradient checkpointing: blocks are computed again in the backward pass."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import common


def main():
    options = common.options(__doc__, layers=48, width=1600, heads=25, vocabulary=50257, batch=8, length=1024)
    config = GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.heads,
                        vocab_size=options.vocabulary, n_positions=options.length, use_cache=False)
    with torch.device("cuda"):
        model = GPT2LMHeadModel._from_config(config, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    progress = common.Progress()
    for step in range(options.steps):
        tokens = torch.randint(options.vocabulary, (options.batch, options.length), device="cuda")
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
