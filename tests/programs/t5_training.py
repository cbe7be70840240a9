"""T5-base: encoder and decoder, batches padded to their longest source and target, Adafactor, bf16 autocast."""
import random

import torch
from transformers import Adafactor, T5Config, T5ForConditionalGeneration

import common


def main():
    options = common.options(__doc__, layers=12, width=768, heads=12, inner=3072, vocabulary=32128, batch=32,
                             source=512, target=128)
    config = T5Config(num_layers=options.layers, d_model=options.width, num_heads=options.heads, d_ff=options.inner,
                      d_kv=options.width // options.heads, vocab_size=options.vocabulary, decoder_start_token_id=0)
    with torch.device("cuda"):
        model = T5ForConditionalGeneration(config)
    optimizer = Adafactor(model.parameters(), lr=1e-3, relative_step=False, scale_parameter=False)
    lengths = random.Random(options.seed)
    progress = common.Progress()
    for step in range(options.steps):
        source_length = lengths.randint(options.source // 2, options.source)
        target_length = lengths.randint(options.target // 2, options.target)
        source = torch.randint(1, options.vocabulary, (options.batch, source_length), device="cuda")
        target = torch.randint(1, options.vocabulary, (options.batch, target_length), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=source, attention_mask=torch.ones_like(source), labels=target).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
