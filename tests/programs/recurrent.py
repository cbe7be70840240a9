"""Recurrent layers and CTC loss as stock PyTorch trains them with cuDNN: LSTM, GRU and plain, several layers, both
directions, projections, dropout between layers, packed sequences, half precision.

Checks shapes, gradients, and that the peak holds what the backward pass needs and not many times that."""
import itertools

import torch
from torch import nn

device = "cuda"
STEPS, BATCH, INPUT, HIDDEN = 50, 16, 32, 64


def check(kind, layers, bidirectional, dtype, dropout, **options):
    layer = kind(INPUT, HIDDEN, layers, bidirectional=bidirectional, dropout=dropout, **options).to(device, dtype)
    inputs = torch.randn(STEPS, BATCH, INPUT, device=device, dtype=dtype, requires_grad=True)
    directions = 2 if bidirectional else 1
    width = options.get("proj_size", 0) or HIDDEN
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    outputs, state = layer(inputs)
    assert outputs.shape == (STEPS, BATCH, directions * width), outputs.shape
    hidden = state[0] if isinstance(state, tuple) else state
    assert hidden.shape == (layers * directions, BATCH, width), hidden.shape
    outputs.float().sum().backward()
    assert inputs.grad.shape == inputs.shape
    for parameter in layer.parameters():
        assert parameter.grad.shape == parameter.shape
    activations = STEPS * BATCH * HIDDEN * directions * layers * outputs.element_size()
    weights = sum(p.numel() * p.element_size() for p in layer.parameters())
    peak = torch.cuda.max_memory_allocated() - before
    states_of_dropout = 2048 * 48 * torch.cuda.get_device_properties(0).multi_processor_count if dropout else 0
    assert activations < peak < 20 * activations + 5 * weights + 2 * states_of_dropout, (kind, peak, activations)
    layer.eval()
    with torch.no_grad():
        assert layer(inputs)[0].shape == outputs.shape


for kind, layers, bidirectional, dtype in itertools.product((nn.LSTM, nn.GRU, nn.RNN), (1, 2), (False, True),
                                                            (torch.float32, torch.float16, torch.float64)):
    check(kind, layers, bidirectional, dtype, dropout=0.0)
check(nn.LSTM, 2, True, torch.float32, dropout=0.3)
check(nn.GRU, 3, False, torch.float32, dropout=0.3, bias=False)
check(nn.LSTM, 2, False, torch.float32, dropout=0.0, proj_size=32)

lengths = [50, 40, 30, 20]
packed = nn.utils.rnn.pack_padded_sequence(torch.randn(50, 4, INPUT, device=device), lengths)
output, _ = nn.LSTM(INPUT, HIDDEN).to(device)(packed)
padded, back = nn.utils.rnn.pad_packed_sequence(output)
assert padded.shape == (50, 4, HIDDEN) and back.tolist() == lengths

for cell, state in ((nn.LSTMCell, 2), (nn.GRUCell, 1)):
    hidden = cell(INPUT, HIDDEN).to(device)(torch.randn(BATCH, INPUT, device=device))
    assert (hidden[0] if state == 2 else hidden).shape == (BATCH, HIDDEN)

# cuDNN's CTC loss serves what it serves: int32 labels on the host in one row, blank 0, all inputs of one length.
scores = torch.randn(STEPS, BATCH, 20, device=device, requires_grad=True)
labels = torch.randint(1, 20, (BATCH * 10,), dtype=torch.int32)
loss = nn.functional.ctc_loss(scores.log_softmax(2), labels, [STEPS] * BATCH, [10] * BATCH)
loss.backward()
assert scores.grad.shape == scores.shape
torch.cuda.synchronize()
print("recurrent: all layers and precisions")
