"""x-transformers: a decoder with rotary positions, gated layers and grouped queries learns by Lion, then writes."""
import lion_pytorch
import torch
import x_transformers

from options import Options, tell


def main():
    options = Options(batch=8)
    length, words = options.size(16, 1024), options.size(100, 32_000)
    model = x_transformers.AutoregressiveWrapper(x_transformers.TransformerWrapper(
        num_tokens=words, max_seq_len=length, attn_layers=x_transformers.Decoder(
            dim=options.size(64, 1024), depth=options.size(2, 16), heads=options.size(2, 16), attn_flash=True,
            attn_kv_heads=options.size(1, 4), rotary_pos_emb=True, ff_glu=True, ff_swish=True,
            use_rmsnorm=True))).to(options.device)
    optimizer = lion_pytorch.Lion(model.parameters(), lr=1e-4)
    for step in range(3):
        tokens = torch.randint(0, words, (options.batch, length)).to(options.device)
        with torch.autocast(options.device.type, torch.bfloat16, enabled=not options.tiny):
            loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)
    written = model.generate(tokens[:1, :4], 8, temperature=0.0, cache_kv=True)
    print("written", tuple(written.shape))


if __name__ == "__main__":
    main()
