"""A PyTorch training loop that survives running out of memory, with any allocator: spillway.step.

Something else takes half of the card while it trains. The micro-batch that fails is redone, first as it was, then after
the program has given up a cache of its own, then in halves.
"""
import logging

import torch

import spillway

logging.basicConfig(format="%(message)s")
torch.manual_seed(1)
model = torch.nn.Sequential(*[part for _ in range(8) for part in (torch.nn.Linear(512, 512), torch.nn.GELU())]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
cache = [torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")]


def drop_cache():
    if not cache:
        return False  # there is nothing to give
    print("the cache is given up")
    cache.clear()


@spillway.step(model=model, make_room=drop_cache, split=True)
def micro_batch(rows):
    loss = model(rows).square().mean()
    loss.backward()
    return loss.detach()


others = []
for number in range(4):
    rows = torch.randn(2048, 512, generator=torch.Generator().manual_seed(number)).cuda()
    loss = micro_batch(rows)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {number}: loss {loss.item():.5f}")
    if number == 0:
        others.append(torch.zeros(64 << 20, dtype=torch.uint8, device="cuda"))
print("redone", micro_batch.recovery.redone, "rows", micro_batch.recovery.rows)
