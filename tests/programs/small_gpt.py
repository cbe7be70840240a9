"""A GPT in plain PyTorch for the distributed scripts: eight ranks that import a model library take a minute.

Knows nothing of Spillway.
"""
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden):
        batch, length, width = hidden.shape
        parts = self.attention(self.before_attention(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.mlp(self.before_mlp(hidden))


class Embedding(nn.Module):
    def __init__(self, vocabulary, width, length):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)

    def forward(self, tokens):
        return self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))


class Head(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden):
        return self.output(self.norm(hidden))


class GPT(nn.Sequential):
    def __init__(self, layers, width, heads, vocabulary, length):
        super().__init__(Embedding(vocabulary, width, length), *(Block(width, heads) for _ in range(layers)),
                         Head(vocabulary, width))


def loss_of(logits, tokens):
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def batches(options):
    """The same tokens in every process."""
    generator = torch.Generator().manual_seed(options.seed)
    while True:
        yield torch.randint(options.vocabulary, (options.batch, options.length), generator=generator)


def part_of(batch, rank, ranks):
    return batch.chunk(ranks)[rank].to("cuda")
