"""ResNet-50 with batch normalisation: channels-last images, SGD with momentum, autocast; evaluation after training."""
import torch
from transformers import ResNetConfig, ResNetForImageClassification

import common


def main():
    options = common.options(__doc__, image=224, classes=1000, batch=256)
    with torch.device("cuda"):
        model = ResNetForImageClassification(ResNetConfig(num_labels=options.classes))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    progress = common.Progress()

    def batch():
        images = torch.randn(options.batch, 3, options.image, options.image, device="cuda")
        return images.to(memory_format=torch.channels_last)

    for step in range(options.steps):
        labels = torch.randint(options.classes, (options.batch,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        model(batch()).logits.argmax(-1)
    progress.finish()


if __name__ == "__main__":
    main()
