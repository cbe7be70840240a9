"""Low-rank adapters on a frozen model of the shape of Llama 3 8B: only the adapters have gradients and states."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import common


class LowRank(torch.nn.Module):
    def __init__(self, base, rank, scale=2.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = torch.nn.Linear(base.in_features, rank, bias=False, device="cuda", dtype=torch.float32)
        self.up = torch.nn.Linear(rank, base.out_features, bias=False, device="cuda", dtype=torch.float32)
        torch.nn.init.zeros_(self.up.weight)
        self.scale = scale

    def forward(self, inputs):
        return self.base(inputs) + self.scale * self.up(self.down(inputs.float())).to(inputs.dtype)


def add_adapters(model, rank, names=("q_proj", "v_proj", "gate_proj", "up_proj", "down_proj")):
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in names:
                setattr(parent, name, LowRank(child, rank))


def main():
    options = common.options(__doc__, layers=32, width=4096, inner=14336, heads=32, key_value_heads=8,
                             vocabulary=128256, rank=16, batch=2, length=1024)
    config = LlamaConfig(num_hidden_layers=options.layers, hidden_size=options.width,
                         intermediate_size=options.inner, num_attention_heads=options.heads,
                         num_key_value_heads=options.key_value_heads, vocab_size=options.vocabulary,
                         max_position_embeddings=options.length, use_cache=False)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    add_adapters(model, options.rank)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
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
