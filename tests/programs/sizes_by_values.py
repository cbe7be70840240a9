"""Sizes and decisions by values that went through device memory: masks, lengths, counts, scales. --device cpu or cuda.

Prints what it decided, so that the outputs on both devices can be compared. Everything follows from what the host
wrote, but for the last lines, which say what a value that a large kernel computed looks like.
"""
import argparse

import torch


def small_numbers(device):
    x = torch.arange(10, device=device)
    sizes = torch.tensor([[3, 2], [5, 7]], device=device)
    print("values", sizes.tolist(), sizes.sum().item(), (sizes > 2).tolist(), sizes.max(0).values.tolist())
    print("views", x[2:8:2].tolist(), x.flip(0).tolist(), sizes.t().contiguous().tolist(),
          torch.cat([sizes.flatten(), x]).tolist())
    counts = torch.zeros(4, dtype=torch.long, device=device)
    counts[1] = 9
    counts[2:] += 3
    counts[::2] += 100
    print("in place", counts.tolist(), torch.cumsum(counts, 0).tolist(), int(max(counts)))
    grown = torch.tensor([7, 8, 9], dtype=torch.uint8, device=device)
    grown.resize_(5)
    print("resized", grown.tolist()[:3])
    back = torch.ones(3, dtype=torch.int32, device=device).to(torch.int64) + torch.full((3,), 5, device=device)
    print("types", back.tolist(), back.bool().all().item(), torch.equal(back, back + 0))
    scale = torch.full((), 65536.0, device=device)
    print("scale", (scale * 2).item(), torch.tensor([1.5, 2.5], device=device).tolist())


def sizes(device):
    x = torch.arange(1000, device=device)
    print("masks", torch.nonzero(x > 996).tolist(), x[x % 250 == 0].tolist(), x.masked_select(x < 3).tolist(),
          torch.where(x > 990)[0].shape, torch.argwhere(x == 5).tolist())
    values, inverse, counts = torch.unique(torch.tensor([3, 1, 3, 2, 1], device=device), return_inverse=True,
                                           return_counts=True)
    print("unique", values.tolist(), inverse.tolist(), counts.tolist(),
          torch.unique_consecutive(torch.tensor([1, 1, 2, 1], device=device)).tolist())
    lengths = torch.tensor([2, 0, 3], device=device)
    print("lengths", torch.repeat_interleave(lengths).tolist(), torch.bincount(lengths).tolist(),
          (torch.arange(4, device=device) < lengths[:, None]).sum(1).tolist())
    padded = torch.nn.utils.rnn.pad_sequence([torch.ones(n, dtype=torch.long, device=device) for n in (1, 4, 2)])
    print("padded", padded.shape, padded.sum().item())
    labels = torch.full((8, 64), -100).index_put((torch.arange(8), torch.arange(8)), torch.tensor(1)).to(device)
    print("labels", labels[labels != -100].shape, int((labels != -100).sum()))


def large(device):
    """Beyond what a single copy is known by."""
    edges = (torch.arange(2 * 300_000) * 7919 % 1000).view(2, -1).to(device)
    loops = edges[0] == edges[1]
    print("edges", edges[:, ~loops].shape, int(edges.max()), torch.bincount(edges[0]).shape)


def pinned(device):
    host = torch.arange(6).pin_memory() if device == "cuda" else torch.arange(6)
    print("pinned", host.to(device, non_blocking=True).view(2, 3).sum(1).tolist())


def unknown():
    """On a card these are chance; where nothing computes they are zeros, wherever the allocator puts them."""
    weights = torch.randn(512, 512, device="cuda")
    print("unknown", weights.sum().item(), (weights > 0).sum().item(), torch.nonzero(weights > 0).shape[0])
    print("finite", weights.isnan().any().item(), torch.isinf(weights.sum()).item(), weights.isfinite().all().item(),
          weights[weights.isfinite()].shape, bool(torch.tensor(float("nan"), device="cuda").isfinite()))
    print("checked", tuple(torch.distributions.Normal(weights, weights.exp()).mean.shape))
    optimizer = torch.optim.SGD([weights.requires_grad_()], lr=0.1)
    scaler = torch.amp.GradScaler("cuda", growth_interval=1)
    scaler.scale((weights**2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    print("scaled", scaler.get_scale())
    weights = weights.detach()
    on_host = torch.empty(512, 512, dtype=torch.bool, pin_memory=True)
    on_host.copy_(weights > 0)
    back = on_host.to("cuda", non_blocking=True)
    written = on_host.fill_(True).to("cuda", non_blocking=True)
    print("returned", back.logical_not().sum().item(), written.sum().item())
    del weights
    fives = torch.full((100,), 5, device="cuda").sum().item()
    print("again", [fives, torch.empty(100, dtype=torch.long, device="cuda").sum().item()])
    torch.manual_seed(1)
    first = torch.rand(1).item()
    torch.manual_seed(1)
    torch.nn.functional.dropout(torch.ones(8, device="cuda"))
    print("the host's numbers are its own", torch.rand(1).item() == first)
    numbers = torch.arange(20000, device="cuda")
    numbers[::2].add_(1)  # too many, with gaps between them, to be told one by one
    print("no more", numbers[2].item())
    x = torch.ones(4, dtype=torch.long, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    graph.replay()
    print("captured", y.tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    small_numbers(device)
    sizes(device)
    large(device)
    pinned(device)
    if device == "cuda":
        unknown()


if __name__ == "__main__":
    main()
