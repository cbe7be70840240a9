"""An LSTM over a long stream of sensor readings, read chunk by chunk, and scored after each."""
import torch
from torch import nn

SENSORS, WIDTH, LAYERS, BATCH, CHUNK, CHUNKS = 64, 512, 2, 64, 128, 120


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(SENSORS, WIDTH, num_layers=LAYERS, batch_first=True)
        self.head = nn.Linear(WIDTH, SENSORS)

    def forward(self, readings, hidden=None):
        output, hidden = self.rnn(readings, hidden)
        return self.head(output), hidden


def stream():
    for _ in range(CHUNKS):
        yield torch.rand(BATCH, CHUNK + 1, SENSORS)


def main():
    model = Forecaster().cuda()
    criterion = nn.MSELoss()
    hidden, errors = None, []
    for number, chunk in enumerate(stream()):
        chunk = chunk.cuda()
        forecast, hidden = model(chunk[:, :-1], hidden)
        errors.append(criterion(forecast, chunk[:, 1:]).item())
        if number % 20 == 0:
            print(f"chunk {number}: error {errors[-1]:.4f}", flush=True)
    print(f"mean error {sum(errors) / len(errors):.4f}")


if __name__ == "__main__":
    main()
