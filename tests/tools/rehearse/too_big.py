"""Trains with a batch that decides what it holds: --batch-size N keeps N x 32 MiB, or, with --transformers, a small
model of Transformers whose layers keep most of it."""
import argparse

import torch


def keep(size):
    layer = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
    return layer.parameters(), lambda: layer(torch.ones(size, 8192, 1024, device="cuda")).square().sum()


def keep_in_layers(size):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=256, n_embd=256, n_layer=16, n_head=4)
    model = GPT2LMHeadModel(config).cuda().train()
    ids = torch.zeros(size, 256, dtype=torch.long, device="cuda")
    return model.parameters(), lambda: model(input_ids=ids, labels=ids).loss


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--transformers", action="store_true")
arguments = parser.parse_args()
parameters, loss = (keep_in_layers if arguments.transformers else keep)(arguments.batch_size)
optimizer = torch.optim.AdamW(parameters)
for _ in range(2):
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
