"""GPT-2 medium whose saved tensors of 1 MiB and more wait for the backward pass in pinned host memory."""
import torch
from torch.autograd.graph import saved_tensors_hooks
from transformers import GPT2Config, GPT2LMHeadModel

import common


def to_host(tensor):
    if not tensor.is_cuda or tensor.nbytes < 1 << 20 or isinstance(tensor, torch.nn.Parameter):
        return tensor.device, tensor
    host = torch.empty(tensor.size(), dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    return tensor.device, host


def to_device(packed):
    device, tensor = packed
    return tensor.to(device, non_blocking=True)


def main():
    options = common.options(__doc__, layers=24, width=1024, heads=16, vocabulary=50257, batch=16, length=1024,
                             torch_hooks=False)
    config = GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.heads,
                        vocab_size=options.vocabulary, n_positions=options.length, use_cache=False)
    with torch.device("cuda"):
        model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    progress = common.Progress()
    for step in range(options.steps):
        tokens = torch.randint(options.vocabulary, (options.batch, options.length), device="cuda")
        offload = torch.autograd.graph.save_on_cpu(pin_memory=True) if options.torch_hooks else \
            saved_tensors_hooks(to_host, to_device)
        with offload, torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
