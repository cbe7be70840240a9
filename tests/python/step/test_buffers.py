"""Modules' buffers in a call that is redone: without a shape yet, made in inference mode, and not kept alive."""
import gc
import unittest
import weakref

import torch

from step_case import Case, Net, batch, raised, setUpModule, shortage, tearDownModule
import spillway


class Lazy(Case):
    def outcome(self, fails):
        torch.manual_seed(1)
        model, failing = torch.nn.Sequential(torch.nn.LazyBatchNorm1d(), torch.nn.Linear(8, 1)), [1] * fails

        @spillway.step
        def micro_batch(model, rows):
            model(rows).sum().backward()
            if failing:
                failing.pop()
                raise shortage()

        for call in range(2):
            micro_batch(model, batch(call))
        return [*(one.grad for one in model.parameters()), *model.buffers()]

    def test_statistics_that_get_their_shape_are_put_back(self):
        self.assert_same(self.outcome(0), self.outcome(1))


class Made(Case):
    """Those that come to be, or get another shape, in the function."""

    def outcome(self, module, fails):
        failing = [1] * fails

        @spillway.step(model=torch.nn.ModuleList([module, torch.nn.Linear(1, 1)]), make_room=lambda: True)
        def micro_batch(rows):
            module(rows)
            if failing:
                failing.pop()
                raise shortage()

        for call in range(2):
            micro_batch(batch(call))
        return dict(module.named_buffers())

    def assert_put_back(self, kind):
        expected, got = self.outcome(kind(), 0), self.outcome(kind(), 2)
        self.assertEqual(list(got), list(expected))
        self.assert_same(list(got.values()), list(expected.values()))

    def test_one_that_was_none(self):
        class Mean(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", None)

            def forward(self, rows):
                self.mean = rows.mean(0) + (0 if self.mean is None else self.mean)

        self.assert_put_back(Mean)

    def test_one_that_was_not_registered(self):
        class Mean(torch.nn.Module):
            def forward(self, rows):
                if not hasattr(self, "mean"):
                    self.register_buffer("mean", torch.zeros(8), persistent=False)
                self.mean.add_(rows.mean(0))

        self.assert_put_back(Mean)

    def test_one_that_gets_another_shape(self):
        class Observer(torch.nn.Module):
            """As PerChannelMinMaxObserver."""

            def __init__(self):
                super().__init__()
                self.register_buffer("most", torch.ones(()))

            def forward(self, rows):
                most = rows.amax(0)
                if self.most.shape != most.shape:
                    self.most.resize_(most.shape).copy_(most)
                else:
                    self.most.copy_(self.most + most)

        self.assert_put_back(Observer)

    def test_one_whose_shape_cannot_be_put_back_is_named(self):
        module = torch.nn.Module()
        module.register_buffer("least", torch.zeros(4))

        @spillway.step(model=[module, torch.nn.Linear(1, 1)])
        def micro_batch():
            module.least.set_(torch.frombuffer(bytearray(4), dtype=torch.float32))
            raise shortage()

        with self.assertRaises(torch.OutOfMemoryError) as raised_error:
            micro_batch()
        self.assertIn("the buffer least of Module got another shape", "".join(raised_error.exception.__notes__))


class Inference(Case):
    def test_one_that_is_made_in_inference_mode_is_put_back(self):
        with torch.inference_mode():
            model = torch.nn.BatchNorm1d(8)
        for training in (True, False):
            model.train(training)
            before, failing = [one.clone() for one in model.buffers()], [1, 1]

            @spillway.step(model=model, make_room=lambda: True)
            def micro_batch(rows):
                self.assert_same(before, list(model.buffers()))
                with torch.inference_mode():
                    model(rows)
                    model.running_var.mul_(2)
                if failing:
                    failing.pop()
                    raise shortage()

            with self.subTest(training=training):
                micro_batch(batch(0))
                before = [one.clone() for one in model.buffers()]
                failing.append(1)
                micro_batch(batch(1))

    def test_what_a_call_in_inference_mode_has_copied_serves_others(self):
        model, failing = Net(), []

        @spillway.step
        def micro_batch(model, rows):
            model(rows)
            if failing:
                failing.pop()
                raise shortage()

        with torch.inference_mode():
            micro_batch(model, batch(0))
        for _ in range(2):
            failing.append(1)
            micro_batch(model, batch(0))
        self.assertEqual(model.norm.num_batches_tracked, 3)

    def test_a_call_in_inference_mode_is_redone(self):
        model, failing = Net(), [1]
        redone = spillway.step(lambda model, rows: raised() if failing and failing.pop() else model(rows))
        with torch.inference_mode():
            redone(model, batch(0))
        self.assertEqual((redone.recovery.redone, model.norm.num_batches_tracked), (1, 1))

    def test_a_gradient_that_is_made_in_inference_mode_is_no_obstacle(self):
        model, failing = torch.nn.Linear(8, 1), [1]
        other = torch.nn.Parameter(torch.ones(2))
        with torch.inference_mode():
            gradient = torch.ones(1, 8)
            other.grad = torch.ones(2)
        model.weight.grad = gradient

        @spillway.step(model=model)
        def micro_batch(rows):
            if failing:
                failing.pop()
                raise shortage()

        micro_batch(batch(0))
        self.assertIs(model.weight.grad, gradient)


class Alive(Case):
    def test_a_call_that_ends_in_an_error_keeps_no_module_alive(self):
        for kind in (lambda: torch.nn.BatchNorm1d(8), torch.nn.LazyBatchNorm1d):
            for error in (shortage, ValueError):
                class Trained(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.layer, self.norm = torch.nn.Linear(8, 8), kind()

                    @spillway.step
                    def training_step(self, rows):
                        raise error()

                model = Trained()
                modules = [weakref.ref(one) for one in model.modules()]
                with self.subTest(error, kind=kind()), self.assertRaises(Exception):
                    model.training_step(batch(0))
                del model
                gc.collect()
                self.assertEqual([one() for one in modules], [None] * 3)


if __name__ == "__main__":
    unittest.main()
