"""Super-resolution: trains a generator, then measures its error on validation images."""
import torch
from torch import nn

TRAINING, VALIDATION, BATCH, CROP = 6, 60, 16, 88


class Generator(nn.Module):
    def __init__(self, width=64, blocks=6):
        super().__init__()
        self.first = nn.Conv2d(3, width, 9, padding=4)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.PReLU(),
                          nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)) for _ in range(blocks))
        self.up = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.PReLU())
        self.last = nn.Conv2d(width, 3, 9, padding=4)

    def forward(self, images):
        x = self.first(images)
        for block in self.blocks:
            x = x + block(x)
        return torch.tanh(self.last(self.up(x)))


def images(size, batch):
    high = torch.rand(batch, 3, 2 * size, 2 * size)
    return nn.functional.avg_pool2d(high, 2).cuda(), high.cuda()


def train(generator, optimizer):
    generator.train()
    for _ in range(TRAINING):
        low, high = images(CROP // 2, BATCH)
        loss = (generator(low) - high).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(generator):
    generator.eval()
    results = {"mse": 0, "batch_sizes": 0}
    for number in range(VALIDATION):
        low, high = images(CROP, 1)
        results["batch_sizes"] += 1
        batch_mse = ((generator(low) - high) ** 2).mean()
        results["mse"] += batch_mse
        if number % 10 == 0:
            print(f"validation {number}: {results['mse'].item() / results['batch_sizes']:.4f}", flush=True)
    return (results["mse"] / results["batch_sizes"]).item()


def main():
    generator = Generator().cuda()
    optimizer = torch.optim.Adam(generator.parameters())
    for epoch in range(2):
        train(generator, optimizer)
        print(f"epoch {epoch}: mean squared error {validate(generator):.4f}", flush=True)


if __name__ == "__main__":
    main()
