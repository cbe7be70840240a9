"""A Llama shape under torch.compile: Inductor's Triton kernels, its fusions and its reuse of buffers."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import common


def main():
    options = common.options(__doc__, layers=2, width=2048, inner=8192, heads=32, key_value_heads=8,
                             vocabulary=32000, batch=8, length=2048, mode="default")
    config = LlamaConfig(num_hidden_layers=options.layers, hidden_size=options.width,
                         intermediate_size=options.inner, num_attention_heads=options.heads,
                         num_key_value_heads=options.key_value_heads, vocab_size=options.vocabulary,
                         max_position_embeddings=options.length, use_cache=False)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    compiled = torch.compile(model, mode=options.mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    progress = common.Progress()
    for step in range(options.steps):
        tokens = torch.randint(options.vocabulary, (options.batch, options.length), device="cuda")
        loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
