"""BERT-large, masked language modelling: batches of about the same number of tokens from buckets of length."""
import random

import torch
from transformers import BertConfig, BertForMaskedLM

import common

BUCKETS = (64, 128, 192, 256, 384, 512)


def main():
    options = common.options(__doc__, layers=24, width=1024, heads=16, inner=4096, vocabulary=30522, tokens=16384,
                             steps=8)
    config = BertConfig(num_hidden_layers=options.layers, hidden_size=options.width,
                        num_attention_heads=options.heads, intermediate_size=options.inner,
                        vocab_size=options.vocabulary)
    with torch.device("cuda"):
        model = BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=100)
    buckets = random.Random(options.seed)
    progress = common.Progress()
    for step in range(options.steps):
        length = buckets.choice(BUCKETS)
        tokens = torch.randint(options.vocabulary, (options.tokens // length, length), device="cuda")
        mask = torch.ones_like(tokens)
        labels = torch.where(torch.rand(tokens.shape, device="cuda") < 0.15, tokens, -100)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
