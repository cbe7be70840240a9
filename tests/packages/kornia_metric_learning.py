"""kornia augments on the device; pytorch-metric-learning mines triplets for its loss; a ResNet of torchvision."""
import kornia.augmentation
import pytorch_metric_learning.losses
import pytorch_metric_learning.miners
import torch
import torchvision

from options import Options, tell


def main():
    options = Options(batch=128)
    side = options.size(32, 224)
    build = options.size(torchvision.models.resnet18, torchvision.models.resnet50)
    model = build(num_classes=options.size(16, 128))
    model.to(options.device)
    augment = torch.nn.Sequential(kornia.augmentation.RandomHorizontalFlip(p=1.0),
                                  kornia.augmentation.Normalize(mean=torch.full((3,), 0.5), std=torch.full((3,), 0.2)),
                                  ).to(options.device)
    mine = pytorch_metric_learning.miners.MultiSimilarityMiner()
    criterion = pytorch_metric_learning.losses.TripletMarginLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    rows = options.size(8, options.batch)
    for step in range(3):
        images = augment(torch.rand(rows, 3, side, side).to(options.device))
        labels = torch.arange(rows).remainder(4).to(options.device)
        found = model(images)
        loss = criterion(found, labels, mine(found, labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)


if __name__ == "__main__":
    main()
