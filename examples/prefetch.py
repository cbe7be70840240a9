"""A plain PyTorch loop that loads its next batch on a side stream, with Spillway as the allocator.

The batch is freed while the model still reads it on another stream, so its memory comes back only when that work is
done.
On a card with no room for a second batch PyTorch's own allocator fails here or waits for every stream; Spillway waits
for the one event that the request needs.
"""
import argparse

import torch

import spillway


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--width", type=int, default=1024)
    return parser.parse_args()


def main():
    arguments = parse()
    spillway.install()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(arguments.width, 256), torch.nn.GELU(), torch.nn.Linear(256, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    rows = torch.randn(arguments.steps, arguments.rows, arguments.width).pin_memory()
    side = torch.cuda.Stream()
    for step in range(arguments.steps):
        with torch.cuda.stream(side):
            batch = rows[step].to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del batch, loss
    with torch.no_grad():
        loss = torch.stack([model(batch.cuda()).square().mean() for batch in rows]).mean()
    print(f"loss after {arguments.steps} steps: {loss.item():.6f}")


if __name__ == "__main__":
    main()
