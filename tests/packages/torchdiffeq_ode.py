"""torchdiffeq: a neural ODE whose solver chooses its own steps, with gradients by the adjoint method."""
import torch
import torchdiffeq

from options import Options, tell


class Field(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, width),
                                          torch.nn.Tanh(), torch.nn.Linear(width, 2))

    def forward(self, time, state):
        return self.layers(state**3)


def main():
    options = Options(batch=200_000)
    field = Field(options.size(16, 512)).to(options.device)
    optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
    times = torch.linspace(0.0, 1.0, 5).to(options.device)
    for step in range(3):
        start, truth = (torch.randn(options.batch, 2).to(options.device) for _ in range(2))
        path = torchdiffeq.odeint_adjoint(field, start, times, method="dopri5", rtol=1e-3, atol=1e-3)
        loss = (path[-1] - truth).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)


if __name__ == "__main__":
    main()
