"""Attributions of an ensemble: the same sequences explained by one model after the other."""
import torch
from torch import nn

MODELS, BATCH, LENGTH, WIDTH, LAYERS = 8, 64, 2048, 128, 6


class Binding(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv1d(4, WIDTH, 21, padding=10), nn.ReLU()]
        for _ in range(LAYERS):
            layers += [nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, sequences):
        return self.head(self.layers(sequences).mean(-1))


def keep(module, inputs, output):
    module.input = inputs[0].clone().detach()
    module.output = output.clone().detach()


def register_hooks(module):
    if isinstance(module, nn.ReLU):
        module.handles = [module.register_forward_hook(keep)]


def clear_hooks(module):
    if isinstance(module, nn.ReLU):
        for handle in module.handles:
            handle.remove()
        del module.handles


def explain(model, sequences):
    model.apply(register_hooks)
    sequences = sequences.clone().requires_grad_()
    gradients, = torch.autograd.grad(model(sequences).sum(), sequences)
    model.apply(clear_hooks)
    return (gradients * sequences).sum(1).detach()


def main():
    models = [Binding().cuda().eval() for _ in range(MODELS)]
    sequences = torch.rand(BATCH, 4, LENGTH, device="cuda")
    total = torch.zeros(BATCH, LENGTH, device="cuda")
    for number, model in enumerate(models):
        total += explain(model, sequences)
        print(f"model {number} explained", flush=True)
    print(f"mean attribution {total.mean().item() / MODELS:.4f}")


if __name__ == "__main__":
    main()
