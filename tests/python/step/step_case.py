"""What the tests of spillway.step on the CPU share: a small model, and failures where a test wants them."""
import gc
import logging
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))

import numpy  # noqa: E402
import torch  # noqa: E402

import spillway  # noqa: E402

logging.getLogger("spillway").setLevel(logging.CRITICAL)


def setUpModule():
    """For the tests' modules, which import it."""
    torch.set_num_threads(1)
    gc.freeze()  # what was imported: a collection takes 0.3 s otherwise


def tearDownModule():
    gc.unfreeze()


def shortage():
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")


def raised():
    raise shortage()


class FailingBackward:
    """Raises while the gradient of one parameter is computed, in the first `times` backward passes that get there."""

    def __init__(self, parameter, times, error=shortage):
        self.left, self.error = times, error
        parameter.register_hook(self)

    def __call__(self, gradient):
        if self.left > 0:
            self.left -= 1
            raise self.error()


class Net(torch.nn.Module):
    """Layers one after the other; the gradients of the last ones are ready first. The first weight is used twice."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(4)])
        self.norm = torch.nn.BatchNorm1d(8)
        self.dropout = torch.nn.Dropout(0.3)

    def forward(self, x):
        for layer in (self.layers[0], *self.layers):
            x = torch.tanh(layer(x))
        return self.dropout(self.norm(x))


def batch(seed, rows=6):
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))


def state(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    return [None if one is None else one.clone() for one in gradients] + [one.clone() for one in model.buffers()]


class Case(unittest.TestCase):
    def assert_same(self, one, other):
        self.assertEqual(len(one), len(other))
        for left, right in zip(one, other):
            self.assertEqual(left is None, right is None)
            if left is not None:
                self.assertTrue(torch.equal(left, right), (left, right))

    def compare(self, function, calls=3, fail=lambda model: None, new=Net, **options):
        """What `function(model, batch)` leaves after some calls, redone and not."""
        outcomes = []
        for decorate in (lambda one: one, spillway.step(**options)):
            model = new()
            torch.manual_seed(5)
            numpy.random.seed(5)
            random.seed(5)
            decorated = decorate(function)
            results = []
            for call in range(calls):
                if hasattr(decorated, "recovery"):
                    fail(model)
                results.append(decorated(model, batch(call)))
            outcomes.append(state(model) + results)
        self.assert_same(*outcomes)
        return decorated.recovery


def plain(model, rows):
    loss = (model(rows) ** 2).mean()
    loss.backward()
    return loss.detach()
