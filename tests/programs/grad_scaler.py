"""A transformer of torch.nn alone in fp16 with a gradient scaler: gradients are checked for Inf before each step."""
import torch
from torch import nn

import common


class Classifier(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.width)
        layer = nn.TransformerEncoderLayer(options.width, options.heads, 4 * options.width, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
        self.head = nn.Linear(options.width, options.classes)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


def main():
    options = common.options(__doc__, layers=24, width=1024, heads=16, vocabulary=50000, classes=20, batch=32,
                             length=512)
    with torch.device("cuda"):
        model = Classifier(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    progress = common.Progress()
    for step in range(options.steps):
        tokens = torch.randint(options.vocabulary, (options.batch, options.length), device="cuda")
        labels = torch.randint(options.classes, (options.batch,), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(tokens), labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        progress.step(step)
    progress.finish()


if __name__ == "__main__":
    main()
