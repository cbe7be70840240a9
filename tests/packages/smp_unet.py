"""segmentation-models-pytorch: a U-Net++ with a ResNet-34, the Dice loss, its metrics, and a gradient scaler."""
import segmentation_models_pytorch as smp
import torch

from options import Options, tell


def main():
    options = Options(batch=8)
    side = options.size(64, 512)
    model = smp.UnetPlusPlus(options.size("resnet18", "resnet34"), encoder_weights=None, classes=4).to(options.device)
    criterion = smp.losses.DiceLoss("multiclass")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(options.device.type, enabled=not options.tiny)
    for step in range(3):
        images = torch.rand(options.batch, 3, side, side).to(options.device)
        masks = torch.randint(0, 4, (options.batch, side, side)).to(options.device)
        with torch.autocast(options.device.type, torch.float16, enabled=not options.tiny):
            logits = model(images)
            loss = criterion(logits, masks)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        tell(step, loss)
    counts = smp.metrics.get_stats(logits.argmax(1), masks, mode="multiclass", num_classes=4)
    print(f"IoU {smp.metrics.iou_score(*counts, reduction='micro').item():.3f}")


if __name__ == "__main__":
    main()
