"""vit-pytorch: a masked autoencoder over its ViT learns by a schedule-free optimizer."""
import schedulefree
import torch
import vit_pytorch

from options import Options, tell


def main():
    options = Options(batch=32)
    side = options.size(32, 224)
    encoder = vit_pytorch.ViT(image_size=side, patch_size=options.size(8, 16), num_classes=10,
                              dim=options.size(32, 768), depth=options.size(2, 12), heads=options.size(2, 12),
                              mlp_dim=options.size(64, 3072), pool="mean")
    model = vit_pytorch.MAE(encoder=encoder, masking_ratio=0.5, decoder_dim=options.size(32, 512),
                            decoder_depth=options.size(1, 6)).to(options.device)
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=1e-3, warmup_steps=2)
    optimizer.train()
    for step in range(3):
        loss = model(torch.rand(options.batch, 3, side, side).to(options.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(step, loss)
    optimizer.eval()
    with torch.no_grad():
        print("classes", tuple(encoder(torch.rand(2, 3, side, side).to(options.device)).shape))


if __name__ == "__main__":
    main()
