"""skorch: a network behind scikit-learn's interface, cross-validated: a new model on the device for each fold."""
import numpy
import sklearn.model_selection
import skorch
import torch

from options import Options


class Network(torch.nn.Module):
    def __init__(self, width=16, inputs=64):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(inputs, width), torch.nn.ReLU(),
                                          torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))

    def forward(self, rows):
        return self.layers(rows)


def main():
    options = Options(batch=8192)
    rows, inputs = options.size(64, 30_000), options.size(16, 4096)
    draw = numpy.random.default_rng(1)
    data = draw.standard_normal((rows, inputs)).astype("float32")
    labels = (data[:, 0] > 0).astype("int64")
    network = skorch.NeuralNetClassifier(
        Network, module__width=options.size(16, 8192), module__inputs=inputs,
        batch_size=options.size(16, options.batch), max_epochs=1, lr=0.1, device=str(options.device), verbose=0,
        train_split=None, iterator_train__shuffle=False)
    scores = sklearn.model_selection.cross_val_score(network, data, labels, cv=2, scoring="accuracy")
    print("scores", [round(float(score), 2) for score in scores])


if __name__ == "__main__":
    main()
