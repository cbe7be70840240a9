"""The shape of Llama 3.2 1B: grouped-query attention, SwiGLU, a vocabulary of 128,256; bf16 weights and fused AdamW."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import common


def main():
    options = common.options(__doc__, layers=16, width=2048, inner=8192, heads=32, key_value_heads=8,
                             vocabulary=128256, batch=4, length=2048, accumulation=2)
    config = LlamaConfig(num_hidden_layers=options.layers, hidden_size=options.width,
                         intermediate_size=options.inner, num_attention_heads=options.heads,
                         num_key_value_heads=options.key_value_heads, vocab_size=options.vocabulary,
                         max_position_embeddings=options.length, tie_word_embeddings=True, use_cache=False)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    progress = common.Progress()
    for step in range(options.steps):
        for _ in range(options.accumulation):
            tokens = torch.randint(options.vocabulary, (options.batch, options.length), device="cuda")
            loss = model(input_ids=tokens, labels=tokens).loss / options.accumulation
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
