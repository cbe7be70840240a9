"""Sampling from a language model of Llama 3's vocabulary in bfloat16, with a cache of keys and values."""
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

BATCH, PROMPT, NEW_TOKENS = 4, 1024, 16
CONFIG = LlamaConfig(vocab_size=128256, hidden_size=1024, intermediate_size=3584, num_hidden_layers=8,
                     num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=4096)


def pick(scores, temperature=0.8, top_k=50):
    best, indices = torch.topk(scores / temperature, top_k)
    choice = torch.multinomial(torch.softmax(best, -1), 1)
    return indices.gather(-1, choice)


@torch.inference_mode()
def sample(model, tokens):
    cache = DynamicCache(config=CONFIG)
    answer = []
    for _ in range(NEW_TOKENS):
        outputs = model(input_ids=tokens, past_key_values=cache, use_cache=True)
        logits = outputs.logits.float()
        tokens = pick(logits[:, -1, :])
        answer.append(tokens)
    return torch.cat(answer, dim=1)


def main():
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(CONFIG).eval()
    for number in range(3):
        prompt = torch.randint(CONFIG.vocab_size, (BATCH, PROMPT), device="cuda")
        answer = sample(model, prompt)
        print(f"prompt {number}: {answer.shape[1]} tokens for each of {answer.shape[0]}", flush=True)


if __name__ == "__main__":
    main()
