"""ViT-B/16 fed by a DataLoader: worker processes, pinned batches, copies that overlap with computation."""
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import ViTConfig, ViTForImageClassification

import common


class Images(Dataset):
    def __init__(self, count, size, classes):
        self.count, self.size, self.classes = count, size, classes

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        generator = torch.Generator().manual_seed(index)
        return torch.randint(256, (3, self.size, self.size), dtype=torch.uint8, generator=generator), \
            index % self.classes


def main():
    options = common.options(__doc__, layers=12, width=768, heads=12, image=224, classes=1000, batch=128, workers=2,
                             steps=4)
    config = ViTConfig(num_hidden_layers=options.layers, hidden_size=options.width,
                       num_attention_heads=options.heads, intermediate_size=4 * options.width,
                       image_size=options.image, num_labels=options.classes)
    with torch.device("cuda"):
        model = ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Images(options.steps * options.batch, options.image, options.classes), options.batch,
                        shuffle=True, num_workers=options.workers, pin_memory=True, persistent_workers=True)
    progress = common.Progress()
    for step, (images, labels) in enumerate(loader):
        images = images.to("cuda", non_blocking=True).float() / 255
        labels = labels.to("cuda", non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(images, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
