"""Parameters that the function makes, shapes or unfreezes in the run that fails: their gradients are taken back too."""
import unittest

import torch

from step_case import Case, batch, setUpModule, shortage, tearDownModule
import spillway


class Scaled(torch.nn.Module):
    """Makes its second parameter when it is run first."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer, self.factor = torch.nn.Linear(8, 4), None

    def forward(self, x):
        if self.factor is None:
            self.factor = torch.nn.Parameter(torch.ones(4))
        return self.layer(x) * self.factor


def shaped():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.LazyLinear(4))


def frozen():
    """With a gradient from before."""
    model = Scaled()
    model(batch(0)).sum().backward()
    model.layer.requires_grad_(False)
    return model


class Made(Case):
    def gradients(self, new, fail, calls=2, **options):
        """After calls of which the first may fail: `fail(place, rows)` says whether it does, before and after the
        backward pass."""
        model = new()

        @spillway.step(model=model, **options)
        def micro_batch(rows):
            if fail("before", rows):
                raise shortage()
            if isinstance(model, Scaled):
                model.layer.requires_grad_()
            torch.manual_seed(2)  # of a layer that gets its shape
            model(rows).square().mean().backward()
            if fail("after", rows):
                raise shortage()

        for call in range(calls):
            micro_batch(batch(call))
        return [parameter.grad for parameter in model.parameters()], micro_batch.recovery

    def test_they_have_one_gradient_after_a_redo(self):
        for new in (Scaled, shaped, frozen):
            expected, _ = self.gradients(new, lambda *_: False)
            for places in (["before"], ["after"], ["after", "after"], ["before", "after"]):
                failing = list(places)

                def fail(place, rows):
                    return bool(failing) and failing[0] == place and bool(failing.pop(0))

                with self.subTest(new.__name__, places=places):
                    got, recovery = self.gradients(new, fail, make_room=lambda: True)
                    self.assert_same(got, expected)
                    self.assertEqual((recovery.failures, recovery.redone), (len(places), 1))

    def test_in_pieces_they_have_the_mean(self):
        for new in (Scaled, shaped, frozen):
            expected, _ = self.gradients(new, lambda *_: False)
            for place in ("before", "after"):
                with self.subTest(new.__name__, place=place):
                    got, recovery = self.gradients(new, lambda at, rows: at == place and len(rows) > 2, split=True)
                    self.assertEqual(recovery.rows, 2)
                    for one, other in zip(got, expected):
                        torch.testing.assert_close(one, other)


if __name__ == "__main__":
    unittest.main()
