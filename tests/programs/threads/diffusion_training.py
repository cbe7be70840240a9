"""Fine-tunes a latent diffusion transformer; weights are averaged over the steps for sampling."""
import torch
from torch import nn

PATCHES, CHANNELS, WIDTH, LAYERS, HEADS = 256, 16, 512, 10, 8
BATCH, STEPS = 4, 4


class LitEma(nn.Module):
    def __init__(self, model, decay=0.9999):
        super().__init__()
        self.decay, self.num_updates = decay, 0
        self.names = {}
        for name, p in model.named_parameters():
            if p.requires_grad:
                self.names[name] = name.replace(".", "")
                self.register_buffer(self.names[name], p.clone().detach().data)

    @torch.no_grad()
    def forward(self, model):
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        shadow = dict(self.named_buffers())
        for name, p in model.named_parameters():
            if p.requires_grad:
                average = shadow[self.names[name]]
                average.sub_((1.0 - decay) * (average - p.to(average.device)))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(CHANNELS, WIDTH)
        self.time = nn.Sequential(nn.Linear(1, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, CHANNELS)

    def forward(self, latents, time):
        return self.out(self.blocks(self.patches(latents) + self.time(time[:, None])[:, None]))


def main():
    model = Denoiser().cuda()
    model_ema = LitEma(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(STEPS):
        latents = torch.randn(BATCH, PATCHES, CHANNELS, device="cuda")
        noise, time = torch.randn_like(latents), torch.rand(BATCH, device="cuda")
        noisy = latents + noise * time[:, None, None]
        loss = (model(noisy, time) - noise).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model_ema(model)
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
