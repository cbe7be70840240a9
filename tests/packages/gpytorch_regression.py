"""GPyTorch: an exact Gaussian process fits its kernel, by Cholesky or conjugate gradients as its own rules choose."""
import gpytorch
import torch

from options import Options, tell


class Process(gpytorch.models.ExactGP):
    def __init__(self, inputs, outputs, likelihood):
        super().__init__(inputs, outputs, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=8))

    def forward(self, inputs):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))


def main():
    options = Options(batch=6000)
    inputs = torch.rand(options.size(50, options.batch), 8).to(options.device)
    outputs = inputs.sum(1).sin()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(options.device)
    model = Process(inputs, outputs, likelihood).to(options.device)
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for step in range(3):
        loss = -evidence(model(inputs), outputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        print(f"predicted {likelihood(model(inputs[:20])).mean.mean().item():.3f}")


if __name__ == "__main__":
    main()
