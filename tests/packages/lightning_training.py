"""Lightning: its Trainer with validation, accuracy by torchmetrics, gradient accumulation and clipping."""
import logging
import warnings

import lightning
import torch
import torchmetrics
import torchvision

from options import Options


class Classifier(lightning.LightningModule):
    def __init__(self, model, classes):
        super().__init__()
        self.model = model
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=classes)

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.log("loss", loss)
        print(f"step {index} loss {loss.item():.4f}", flush=True)
        return loss

    def validation_step(self, batch, index):
        self.accuracy(self.model(batch[0]), batch[1])
        self.log("accuracy", self.accuracy, on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    options = Options(batch=32)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    side, classes = options.size(32, 224), options.size(10, 1000)
    rows = 4 * options.batch
    images = torch.utils.data.TensorDataset(torch.randn(rows, 3, side, side), torch.randint(0, classes, (rows,)))
    load = torch.utils.data.DataLoader(images, batch_size=options.batch)
    model = torchvision.models.VisionTransformer(
        image_size=side, patch_size=options.size(8, 16), num_layers=options.size(2, 12), num_heads=options.size(2, 12),
        hidden_dim=options.size(32, 768), mlp_dim=options.size(64, 3072), num_classes=classes)
    trainer = lightning.Trainer(
        accelerator="cpu" if options.device.type == "cpu" else "gpu", devices=1, max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=2,
        gradient_clip_val=1.0, precision=options.size("32-true", "bf16-mixed"))
    trainer.fit(Classifier(model, classes), load, load)
    print(f"accuracy {trainer.callback_metrics['accuracy'].item():.2f}")


if __name__ == "__main__":
    main()
