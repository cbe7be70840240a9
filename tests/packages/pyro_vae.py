"""Pyro: a variational autoencoder of images, fitted by stochastic variational inference."""
import pyro
import pyro.distributions as dist
import pyro.infer
import pyro.optim
import torch

from options import Options


class Autoencoder(torch.nn.Module):
    def __init__(self, pixels, width, latent):
        super().__init__()
        self.latent = latent
        self.encoder = torch.nn.Sequential(torch.nn.Linear(pixels, width), torch.nn.Softplus(),
                                           torch.nn.Linear(width, 2 * latent))
        self.decoder = torch.nn.Sequential(torch.nn.Linear(latent, width), torch.nn.Softplus(),
                                           torch.nn.Linear(width, pixels))

    def model(self, images):
        pyro.module("decoder", self.decoder)
        with pyro.plate("data", len(images)):
            zero = images.new_zeros(len(images), self.latent)
            latent = pyro.sample("latent", dist.Normal(zero, zero + 1).to_event(1))
            pyro.sample("images", dist.Bernoulli(logits=self.decoder(latent)).to_event(1), obs=images)

    def guide(self, images):
        pyro.module("encoder", self.encoder)
        with pyro.plate("data", len(images)):
            mean, scale = self.encoder(images).chunk(2, -1)
            pyro.sample("latent", dist.Delta(mean).to_event(1) if self.exact else
                        dist.Normal(mean, scale.exp()).to_event(1))

    exact = False


def main():
    options = Options(batch=4096)
    pixels = options.size(64, 64 * 64 * 3)
    pyro.set_rng_seed(1)
    model = Autoencoder(pixels, options.size(32, 4096), options.size(4, 256)).to(options.device)
    model.exact = options.tiny  # without draws both devices give the same
    inference = pyro.infer.SVI(model.model, model.guide, pyro.optim.Adam({"lr": 1e-3}), pyro.infer.Trace_ELBO())
    for step in range(3):
        images = torch.rand(options.batch, pixels).round().to(options.device)
        print(f"step {step} loss {inference.step(images) / options.batch:.3f}", flush=True)


if __name__ == "__main__":
    main()
