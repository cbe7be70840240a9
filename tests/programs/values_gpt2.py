"""Trains a small Hugging Face GPT-2 and prints its losses as exact hexadecimal numbers: one line per step.

usage: values_gpt2.py cpu|cuda [steps [width]]
An ordinary script: nothing in it knows of Spillway. On `cuda` it also prints the bytes still allocated at its end.
"""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    device = sys.argv[1]
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    width = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    torch.set_num_threads(2)
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=211, n_positions=64, n_embd=width, n_layer=2, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 211, (4, 32), generator=torch.Generator().manual_seed(3)).to(device)
    for _ in range(steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(loss.item().hex(), norm.item().hex())
    if device == "cuda":
        del model, optimizer, tokens, loss, norm
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps them otherwise
        print("left", torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
