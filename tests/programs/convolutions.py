"""Convolutional networks as stock PyTorch trains them with cuDNN: 1, 2 and 3 dimensions, transposed, grouped, channels
last or not, every precision, benchmark and deterministic modes, batch norm in training and evaluation.

Checks shapes, gradients, and that the peak is what the tensors take and not more than their like again for
workspaces."""
import itertools

import torch
from torch import nn

device = "cuda"
half_types = [torch.float16] + ([torch.bfloat16] if torch.cuda.is_bf16_supported(including_emulation=False) else [])


def by_columns(dimensions, transposed, dtype):
    """PyTorch 2.9 leaves cuDNN out here below cuDNN 9.15, and takes up to 17 times the memory (pytorch#166643)."""
    return torch.__version__.startswith("2.9.") and dimensions == 3 and not transposed and dtype in half_types


def layers(dimensions, transposed):
    names = {1: ("Conv1d", "ConvTranspose1d"), 2: ("Conv2d", "ConvTranspose2d"), 3: ("Conv3d", "ConvTranspose3d")}
    return getattr(nn, names[dimensions][transposed])


def spatial(dimensions):
    return {1: (64,), 2: (16, 16), 3: (8, 8, 8)}[dimensions]


def step(layer, inputs):
    """Forward and backward; the bytes that the peak is above what was there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = layer(inputs)
    result.float().sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad.shape == parameter.shape
    if inputs.is_floating_point() and inputs.requires_grad:
        assert inputs.grad.shape == inputs.shape
    return result, torch.cuda.max_memory_allocated() - before


def bytes_of(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def check(dimensions, transposed, groups, dtype, channels_last):
    layer = layers(dimensions, transposed)(16, 32, 3, padding=1, groups=groups).to(device, dtype)
    inputs = torch.randn(4, 16, *spatial(dimensions), device=device, dtype=dtype)
    if channels_last and dimensions > 1:
        memory_format = {2: torch.channels_last, 3: torch.channels_last_3d}[dimensions]
        layer, inputs = layer.to(memory_format=memory_format), inputs.to(memory_format=memory_format)
    inputs.requires_grad_(True)
    result, peak = step(layer, inputs)
    assert result.shape == (4, 32, *spatial(dimensions)), result.shape
    assert result.dtype == dtype
    columns = by_columns(dimensions, transposed, dtype)
    if channels_last and dimensions > 1 and dtype != torch.float64 and groups < 16 and not columns:
        # PyTorch asks cuDNN for no other layout in double precision, and has kernels of its own for depthwise ones.
        assert result.is_contiguous(memory_format=memory_format)
    tensors = bytes_of(result, inputs, *layer.parameters())
    assert peak >= bytes_of(result, inputs.grad)
    assert columns or peak <= 8 * tensors + (1 << 20), (dimensions, transposed, groups, dtype, peak, tensors)


def check_all():
    for dimensions, transposed, groups, channels_last in itertools.product((1, 2, 3), (0, 1), (1, 4, 16), (0, 1)):
        for dtype in (torch.float32, torch.float64, *half_types):
            check(dimensions, transposed, groups, dtype, channels_last)


def check_modes():
    for benchmark, deterministic, tf32 in itertools.product((False, True), repeat=3):
        with torch.backends.cudnn.flags(enabled=True, benchmark=benchmark, deterministic=deterministic,
                                        allow_tf32=tf32):
            for dtype in (torch.float32, *half_types):
                check(2, False, 1, dtype, channels_last=False)
                check(2, False, 1, dtype, channels_last=True)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
                                  nn.ReLU(inplace=True), nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(channels))

    def forward(self, inputs):
        return torch.relu(self.body(inputs) + inputs)


def check_network(memory_format, autocast):
    network = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
                            Block(64), Block(64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    network = network.to(device).to(memory_format=memory_format)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(16, 3, 64, 64, device=device).contiguous(memory_format=memory_format)
    labels = torch.zeros(16, dtype=torch.long, device=device)
    for _ in range(2):
        with torch.autocast(device, dtype=half_types[-1], enabled=autocast):
            loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        assert network(images).shape == (16, 10)


check_all()
check_modes()
for memory_format, autocast in itertools.product((torch.contiguous_format, torch.channels_last), (False, True)):
    check_network(memory_format, autocast)
fused = torch.cudnn_convolution_relu(torch.randn(2, 8, 8, 8, device=device), torch.randn(8, 8, 3, 3, device=device),
                                     None, (1, 1), (1, 1), (1, 1), 1)
assert fused.shape == (2, 8, 8, 8)
torch.cuda.synchronize()
print("convolutions: all shapes, modes and precisions")
