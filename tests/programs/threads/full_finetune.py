"""Fine-tunes all weights of a Llama-shaped model in bfloat16 on one device."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, BATCH, LENGTH = 3, 1, 512
CONFIG = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5504, num_hidden_layers=12,
                     num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=2048)


def main():
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(CONFIG)
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for step in range(STEPS):
        tokens = torch.randint(CONFIG.vocab_size, (BATCH, LENGTH), device="cuda")
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
