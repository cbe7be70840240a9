"""Text generation with the shape of Llama 3 8B in bf16: the cache of keys and values grows with every token, or with
--static is whole from the start.

Each step is one batch of prompts. With --generate the loop is that of transformers' generate(), which asks the device
after every token whether all sequences have ended: zeros say never, so it needs true values or a rehearsal.
"""
import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, StaticCache

import common


@torch.inference_mode()
def sample(model, prompt, new_tokens, cache, temperature=0.8):
    tokens, position = prompt, torch.arange(prompt.shape[1], device="cuda")
    result = [prompt]
    for _ in range(new_tokens):
        output = model(tokens, past_key_values=cache, cache_position=position, use_cache=True, logits_to_keep=1)
        probabilities = torch.softmax(output.logits[:, -1].float() / temperature, dim=-1)
        tokens = torch.multinomial(probabilities, 1)
        result.append(tokens)
        position = position[-1:] + 1
    return torch.cat(result, dim=1)


def main():
    options = common.options(__doc__, layers=32, width=4096, inner=14336, heads=32, key_value_heads=8,
                             vocabulary=128256, batch=16, prompt=2048, new_tokens=32, context=4096, static=False,
                             generate=False, steps=2)
    config = LlamaConfig(num_hidden_layers=options.layers, hidden_size=options.width,
                         intermediate_size=options.inner, num_attention_heads=options.heads,
                         num_key_value_heads=options.key_value_heads, vocab_size=options.vocabulary,
                         max_position_embeddings=options.context)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    progress = common.Progress()
    for step in range(options.steps):
        prompt = torch.randint(options.vocabulary, (options.batch, options.prompt), device="cuda")
        cache = StaticCache(config, max_cache_len=options.context) if options.static else DynamicCache(config=config)
        if options.generate:
            model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=options.new_tokens,
                           do_sample=True, pad_token_id=0, past_key_values=cache)
        else:
            sample(model, prompt, options.new_tokens, cache)
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
