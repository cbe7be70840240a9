"""ViT-L/16 on images of 224 x 224: an exponential moving average of the weights is kept beside the model."""
import torch
from transformers import ViTConfig, ViTForImageClassification

import common


def main():
    options = common.options(__doc__, layers=24, width=1024, heads=16, inner=4096, image=224, patch=16, classes=1000,
                             batch=128)
    config = ViTConfig(num_hidden_layers=options.layers, hidden_size=options.width,
                       num_attention_heads=options.heads, intermediate_size=options.inner, image_size=options.image,
                       patch_size=options.patch, num_labels=options.classes)
    with torch.device("cuda"):
        model = ViTForImageClassification(config)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    progress = common.Progress()
    for step in range(options.steps):
        images = torch.randn(options.batch, 3, options.image, options.image, device="cuda")
        labels = torch.randint(options.classes, (options.batch,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(images, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(model)
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
