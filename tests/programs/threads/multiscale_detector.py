"""A detector that sees images in several resolutions; each resolution's step is replayed as a CUDA graph."""
import torch
from torch import nn

RESOLUTIONS = range(384, 384 + 11 * 32, 32)
BATCH, WIDTH, QUERIES, CLASSES = 2, 96, 100, 80


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for width in (WIDTH // 2, WIDTH, 2 * WIDTH, 4 * WIDTH):
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.GroupNorm(8, width), nn.GELU(),
                       nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.GELU()]
            channels = width
        self.backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(10))
        self.head = nn.Linear(channels, CLASSES + 4)

    def forward(self, images):
        return self.head(self.backbone(images).flatten(2).transpose(1, 2))


class GraphRunner:
    """One captured graph for each shape of images."""

    def __init__(self, model):
        self.model, self.callables = model, {}

    def __call__(self, images):
        key = tuple(images.shape)
        if key not in self.callables:
            example = torch.zeros_like(images)
            self.callables[key] = self.capture(example)
        graph, inputs, outputs = self.callables[key]
        inputs.copy_(images)
        graph.replay()
        return outputs.clone()

    def capture(self, example):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.model(example)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self.model(example)
        return graph, example, outputs


@torch.inference_mode()
def main():
    model = Detector().cuda().eval()
    run = GraphRunner(model)
    for _ in range(2):
        for resolution in reversed(RESOLUTIONS):
            images = torch.randn(BATCH, 3, resolution, resolution, device="cuda")
            boxes = run(images)
            print(f"{resolution}: {tuple(boxes.shape)}", flush=True)


if __name__ == "__main__":
    main()
