"""Trains a small Hugging Face T5 on padded batches and prints its losses as exact hexadecimal numbers: a line a step.

usage: values_t5.py cpu|cuda
An ordinary script: nothing in it knows of Spillway. On `cuda` it also prints the bytes still allocated at its end.
"""
import sys

import torch
from transformers import Adafactor, T5Config, T5ForConditionalGeneration

STEPS = 4


def main() -> None:
    device = sys.argv[1]
    torch.set_num_threads(2)
    torch.manual_seed(7)
    config = T5Config(num_layers=2, d_model=64, num_heads=4, d_kv=16, d_ff=128, vocab_size=211, dropout_rate=0.0,
                      decoder_start_token_id=0, feed_forward_proj="gated-gelu")
    model = T5ForConditionalGeneration(config).to(device)
    optimizer = Adafactor(model.parameters(), lr=1e-3, relative_step=False, scale_parameter=False)
    numbers = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        source = torch.randint(1, 211, (4, 24 + step), generator=numbers)
        target = torch.randint(1, 211, (4, 16 - step), generator=numbers)
        mask = torch.ones_like(source)
        mask[0, 20:] = 0
        loss = model(input_ids=source.to(device), attention_mask=mask.to(device), labels=target.to(device)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex(), model.shared.weight.detach().cpu().double().sum().item().hex())
    if device == "cuda":
        del model, optimizer, loss
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
        print("left", torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
