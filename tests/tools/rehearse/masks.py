"""Sizes that masks decide which no kernel computed: python masks.py kept|experts|neither|contradict."""
import sys

import torch

MIB = 1 << 20
x = torch.rand(100 * MIB // 4, device="cuda")
if sys.argv[1] == "kept":
    kept = x[x > 0.5]
    print("kept", kept.numel(), torch.masked_select(x, x > 0.7).numel(), (x < 0).nonzero().shape)
elif sys.argv[1] == "experts":
    expert = (x * 12).long()
    parts = [x[expert == i] for i in range(12)]  # on a card each element is in one of them
elif sys.argv[1] == "neither":
    kept = [x[x > i / 12] for i in range(12)]
    torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda")
elif x[x > 0.5].numel() + x[x <= 0.5].numel() > x.numel():
    raise ValueError("more elements than there are")
