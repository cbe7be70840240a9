"""DistributedDataParallel on a GPT-2 medium shape (355 M parameters): what most people start with torchrun.

Gradients are reduced in buckets while the backward pass goes on; --accumulate leaves that out for all but the last part
of a batch (no_sync), --mixed also sums a tensor of the CPU with Gloo in the same group, --leave exits without
destroying the group, --check compares the gradients of all ranks.
"""
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import common
import small_gpt
from ranks import Ranks


def check_gradients(model, ranks):
    """Every rank has the same."""
    for name, parameter in model.named_parameters():
        parts = [torch.empty_like(parameter.grad) for _ in range(ranks.count)]
        dist.all_gather(parts, parameter.grad)
        if not all(torch.equal(part, parameter.grad) for part in parts):
            raise SystemExit(f"the gradients of {name} differ")


def main():
    options = common.options(__doc__, layers=24, width=1024, heads=16, vocabulary=50257, batch=8, length=512,
                             accumulate=1, bf16=False, mixed=False, leave=False, check=False)
    ranks = Ranks("cpu:gloo,cuda:nccl" if options.mixed else "nccl")
    with torch.device("cuda"):
        gpt = small_gpt.GPT(options.layers, options.width, options.heads, options.vocabulary, options.length)
    model = DistributedDataParallel(gpt, device_ids=[ranks.device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batch in zip(range(options.steps), small_gpt.batches(options)):
        tokens = small_gpt.part_of(batch, ranks.number, ranks.count)
        total = torch.zeros((), device="cuda")
        for number, part in enumerate(tokens.chunk(options.accumulate)):
            last = number + 1 == options.accumulate
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16, enabled=options.bf16):
                    loss = small_gpt.loss_of(model(part), part) / options.accumulate
                loss.backward()
            total += loss.detach()
        if options.check:
            check_gradients(model, ranks)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ranks.print(f"step {step}: loss={ranks.mean(total):.7f} memory_allocated={torch.cuda.memory_allocated()}")
    if options.mixed:
        on_host = torch.tensor([float(ranks.number)])
        dist.all_reduce(on_host)
        ranks.print(f"sum_on_host={on_host.item()}")
    dist.barrier(device_ids=[ranks.device.index])
    ranks.finish()
    if not options.leave:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
