"""MONAI: a U-Net on volumes, Dice with cross-entropy, and inference by a sliding window over a whole volume."""
import monai.inferers
import monai.losses
import monai.metrics
import monai.networks.nets
import monai.networks.utils
import torch

from options import Options, tell


def main():
    options = Options(batch=4)
    side = options.size(32, 96)
    model = monai.networks.nets.UNet(
        spatial_dims=3, in_channels=1, out_channels=3, channels=options.size((4, 8, 16), (32, 64, 128, 256)),
        strides=options.size((2, 2), (2, 2, 2)), num_res_units=2).to(options.device)
    criterion = monai.losses.DiceCELoss(to_onehot_y=True, softmax=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        volumes = torch.rand(options.batch, 1, side, side, side).to(options.device)
        labels = torch.randint(0, 3, volumes.shape).to(options.device)
        loss = criterion(model(volumes), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)
    model.eval()
    volume = torch.rand(1, 1, 2 * side, 2 * side, side).to(options.device)
    with torch.no_grad():
        found = monai.inferers.sliding_window_inference(volume, (side,) * 3, 2, model, overlap=0.25)
    dice = monai.metrics.DiceMetric()
    truth = torch.randint(0, 3, volume.shape).to(options.device)
    dice(monai.networks.utils.one_hot(found.argmax(1, keepdim=True), 3), monai.networks.utils.one_hot(truth, 3))
    print(f"window {found.mean().item():.4f} dice {dice.aggregate().item():.3f}")


if __name__ == "__main__":
    main()
