"""torchvision: Mask R-CNN with a ResNet-50 trains on images of different sizes, with boxes and masks."""
import torch
import torchvision

from options import Options, tell


def target(side, device):
    corners = torch.rand(6, 2) * side / 2
    boxes = torch.cat([corners, corners + 8 + torch.rand(6, 2) * side / 3], 1)
    masks = torch.zeros(6, side, side, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes.long().tolist()):
        mask[top:bottom, left:right] = 1
    parts = {"boxes": boxes, "masks": masks, "labels": torch.randint(1, 11, (6,))}
    return {name: tensor.to(device) for name, tensor in parts.items()}


def main():
    options = Options(batch=4)
    side = options.size(64, 640)
    model = torchvision.models.detection.maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=11, min_size=options.size(64, 800),
        max_size=options.size(96, 1333), rpn_batch_size_per_image=options.size(100_000, 256),
        box_batch_size_per_image=options.size(100_000, 512)).to(options.device)  # tiny: all, so that none is drawn
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    # Before the first step: the sampling of boxes draws from the device's numbers.
    steps = [([torch.rand(3, side, side + 32 * i) for i in range(options.batch)],
              [target(side, options.device) for _ in range(options.batch)]) for _ in range(3)]
    for step, (images, targets) in enumerate(steps):
        images = [image.to(options.device) for image in images]
        loss = sum(model(images, targets).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)
    model.eval()
    with torch.no_grad():
        print("kept", [len(found["boxes"]) > 0 for found in model(images)])


if __name__ == "__main__":
    main()
