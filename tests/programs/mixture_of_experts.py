"""The shape of Mixtral, with fewer layers: each token goes to two of eight experts.

The router's choice is a value on the device, and how many tokens an expert gets decides the sizes of its activations:
what this program needs is known only with true values.
"""
import torch
from transformers import MixtralConfig, MixtralForCausalLM

import common


def main():
    options = common.options(__doc__, layers=8, width=2048, inner=7168, heads=32, key_value_heads=8, experts=8,
                             vocabulary=32000, batch=4, length=2048)
    config = MixtralConfig(num_hidden_layers=options.layers, hidden_size=options.width,
                           intermediate_size=options.inner, num_attention_heads=options.heads,
                           num_key_value_heads=options.key_value_heads, num_local_experts=options.experts,
                           vocab_size=options.vocabulary, max_position_embeddings=options.length,
                           output_router_logits=True, use_cache=False)
    with torch.device("cuda"):
        model = MixtralForCausalLM._from_config(config, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    progress = common.Progress()
    for step in range(options.steps):
        tokens = torch.randint(options.vocabulary, (options.batch, options.length), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
