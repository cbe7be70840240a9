"""timm: ConvNeXt with its mixup, AdamW by layer decay and a moving average of the weights, in bfloat16."""
import timm.data
import timm.loss
import timm.optim
import timm.utils
import torch

from options import Options, tell


def main():
    options = Options(batch=64)
    image, classes = options.size(32, 224), options.size(10, 1000)
    model = timm.create_model(options.size("convnext_atto", "convnext_base"), num_classes=classes, drop_path_rate=0.0)
    model.to(options.device, memory_format=torch.channels_last)
    average = timm.utils.ModelEmaV3(model, decay=0.9)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, layer_decay=0.8)
    mixup = timm.data.Mixup(mixup_alpha=0.8, num_classes=classes)
    criterion = timm.loss.SoftTargetCrossEntropy()
    for step in range(3):
        images = torch.randn(options.batch, 3, image, image).to(options.device, memory_format=torch.channels_last)
        images, labels = mixup(images, torch.randint(0, classes, (options.batch,)).to(options.device))
        with torch.autocast(options.device.type, torch.bfloat16, enabled=not options.tiny):
            loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model, step=step)
        tell(step, loss)


if __name__ == "__main__":
    main()
