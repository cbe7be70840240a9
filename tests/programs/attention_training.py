"""A block of attention and a feed-forward part trained for two steps: the smallest program whose kernels PyTorch
chooses by the card. Prints what it sees of the card."""
import argparse

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.forward_part = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.first(x)).chunk(3, dim=-1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.forward_part(self.second(x))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--precision", choices=["float32", "float16", "bfloat16"], default="bfloat16")
parser.add_argument("--without-cudnn", action="store_true", help="attention from PyTorch's own kernels only")
arguments = parser.parse_args()

if arguments.without_cudnn:
    torch.backends.cuda.enable_cudnn_sdp(False)
card = torch.cuda.get_device_properties(0)
print(f"name={card.name} capability={card.major}.{card.minor} multiprocessors={card.multi_processor_count}")
free, total = torch.cuda.mem_get_info()
print(f"total={total} properties={card.total_memory} held={total - free}")
precision = getattr(torch, arguments.precision)
block = Block(arguments.width, arguments.heads).cuda()
optimizer = torch.optim.AdamW(block.parameters())
for _ in range(2):
    x = torch.randn(arguments.batch, arguments.length, arguments.width, device="cuda")
    with torch.autocast("cuda", dtype=precision, enabled=precision is not torch.float32):
        loss = block(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
print(f"peak_allocated={torch.cuda.max_memory_allocated()} peak_reserved={torch.cuda.max_memory_reserved()}")
