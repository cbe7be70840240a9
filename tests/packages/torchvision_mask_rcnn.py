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
        max_size=options.size(96, 1333)).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(3):
        images = [torch.rand(3, side, side + 32 * i).to(options.device) for i in range(options.batch)]
        loss = sum(model(images, [target(side, options.device) for _ in images]).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)
    model.eval()
    with torch.no_grad():
        print("kept", [len(found["boxes"]) > 0 for found in model(images)])


if __name__ == "__main__":
    main()
