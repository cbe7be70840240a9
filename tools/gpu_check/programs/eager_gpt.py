#!/usr/bin/env python3
"""eager_gpt.py SHAPE TEXT RESULT: a GPT-2 trained by PyTorch alone, in bf16 mixed precision, the usual way.

SHAPE is JSON: layers, width, heads, context, vocabulary, batch, micro_batch, steps. Weights in 32 bits under autocast,
attention by scaled_dot_product_attention, torch.optim.AdamW as it comes. Leaves tokens a second, the median after the
first two steps, and the most bytes allocated, as JSON.
"""
import json
import pathlib
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WARM = 2  # steps that are not counted


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, tokens, width = x.shape
        parts = self.attention(self.ln_1(x)).view(rows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.mlp(self.ln_2(x))


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        width = shape["width"]
        self.words, self.positions = nn.Embedding(shape["vocabulary"], width), nn.Embedding(shape["context"], width)
        self.blocks = nn.Sequential(*(Block(width, shape["heads"]) for _ in range(shape["layers"])))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.words(tokens) + self.positions.weight[:tokens.shape[1]]
        return functional.linear(self.norm(self.blocks(x)), self.words.weight)


def step(model, optimizer, batch, micro_batch):
    for rows in batch.split(micro_batch):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(rows[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="sum")
        (loss / batch[:, 1:].numel()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main():
    shape, (text, result) = json.loads(sys.argv[1]), map(pathlib.Path, sys.argv[2:4])
    window = shape["context"] + 1
    data = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8)
    torch.manual_seed(1)
    model = Model(shape).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    seconds = []
    for _ in range(WARM + shape["steps"]):
        starts = torch.randint(len(data) - window, (shape["batch"],))
        batch = torch.stack([data[start:start + window] for start in starts]).long().cuda()
        torch.cuda.synchronize()
        start = time.perf_counter()
        step(model, optimizer, batch, shape["micro_batch"])
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    result.write_text(json.dumps({"seconds": statistics.median(seconds[WARM:]),
                                  "peak": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
