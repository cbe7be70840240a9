"""Trains a draft model on conversations of any length, as many in a batch as there is room for."""
import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS, STEPS = 4096, 10
CONFIG = LlamaConfig(vocab_size=50304, hidden_size=512, intermediate_size=1536, num_hidden_layers=12,
                     num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=4096)


def conversations(seed=3):
    lengths = random.Random(seed)
    for _ in range(STEPS):
        longest = min(max(int(lengths.lognormvariate(6.0, 0.9)), 48), 2048)
        yield torch.randint(CONFIG.vocab_size, (TOKENS // longest, longest))


def main():
    model = LlamaForCausalLM(CONFIG).cuda()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, tokens in enumerate(conversations()):
        tokens = tokens.cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {tokens.shape[0]} of {tokens.shape[1]} tokens, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
