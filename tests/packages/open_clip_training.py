"""open_clip: a ViT-B/32 and its text tower learn by its contrastive loss, with gradient checkpointing, in bfloat16."""
import open_clip
import torch

from options import Options, tell


def build(options):
    if not options.tiny:
        return open_clip.create_model("ViT-B-32")
    return open_clip.CLIP(embed_dim=32, vision_cfg={"image_size": 32, "patch_size": 8, "layers": 2, "width": 64},
                          text_cfg={"context_length": 77, "width": 32, "heads": 2, "layers": 2})


def main():
    options = Options(batch=256)
    model = build(options).to(options.device)
    model.set_grad_checkpointing(True)
    side = options.size(32, 224)
    criterion = open_clip.ClipLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2)
    for step in range(3):
        images = torch.randn(options.batch, 3, side, side).to(options.device)
        words = open_clip.tokenize([f"a photo of object {i}" for i in range(options.batch)]).to(options.device)
        with torch.autocast(options.device.type, torch.bfloat16, enabled=not options.tiny):
            loss = criterion(*model(images, words)[:3])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6052)
        tell(step, loss)


if __name__ == "__main__":
    main()
