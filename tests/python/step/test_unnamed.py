"""Tensors that get gradients in a call though spillway.step's `model` does not have them: a redo is an error."""
import gc
import unittest

import torch

from step_case import Case, FailingBackward, Net, batch, plain, setUpModule, shortage, tearDownModule
import spillway

TOLD = "{}.* gets gradients from the function, and is not known: .* twice.*spillway.step\\(model="


class Unnamed(Case):
    def call(self, function, model=None, fails=1, **options):
        """`function(model, rows)` and a failure after it."""
        failing = [1] * fails

        @spillway.step(make_room=lambda: True, **options)
        def micro_batch(model, rows):
            result = function(model, rows)
            if failing:
                failing.pop()
                raise shortage()
            return result

        micro_batch(model or Net(), batch(1))
        return micro_batch.recovery

    def test_a_parameter_beside_the_model_is_noticed(self):
        factor = torch.nn.Parameter(torch.ones(8))
        for fails in (1, 2):
            with self.subTest(fails), self.assertRaisesRegex(RuntimeError, TOLD.format(r"a tensor of shape \[8\]")):
                self.call(lambda model, rows: (model(rows) * factor).sum().backward(), fails=fails)

    def test_a_second_model_is_noticed_by_name(self):
        other = torch.nn.Linear(8, 8)
        with self.assertRaisesRegex(RuntimeError, TOLD.format(r"(weight|bias) of Linear, a tensor of shape \[8")):
            self.call(lambda model, rows: other(model(rows)).sum().backward())

    def test_a_loss_with_parameters_is_no_model(self):
        class Loss(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.factor = torch.nn.Parameter(torch.ones(1))

        model = Net()
        with self.assertRaisesRegex(RuntimeError, TOLD.format("")):
            self.call(lambda loss, rows: (model(rows).mean() * loss.factor).backward(), model=Loss())

    def test_an_argument_that_gets_a_gradient_is_known(self):
        """As in adversarial training."""
        gradients = []
        for fails in (0, 1):
            model, failing = Net(), [1] * fails
            rows, factor = batch(1).requires_grad_(), torch.nn.Parameter(torch.ones(8))
            factor.grad = torch.ones(8)
            torch.manual_seed(3)

            @spillway.step
            def micro_batch(model, inputs):
                (model(inputs["rows"]) * inputs["factor"]).sum().backward()
                if failing:
                    failing.pop()
                    raise shortage()

            micro_batch(model, {"rows": rows, "factor": factor})
            gradients.append([rows.grad, factor.grad])
        self.assert_same(*gradients)

    def test_what_the_function_does_not_reach_is_no_obstacle(self):
        other, made = Net(), []
        plain(other, batch(0))

        def function(model, rows):
            factor = torch.ones(8, requires_grad=True)
            made.append(factor)  # alive, and another one in the redo
            (model(rows) * factor).sum().backward()

        self.assertEqual(self.call(function).redone, 1)
        self.assertEqual(self.call(plain).redone, 1)

    def test_a_gradient_that_came_only_after_the_failure_is_none(self):
        last = torch.nn.Parameter(torch.ones(6, 8))  # the backward pass comes to it after the model
        last.grad = torch.zeros(6, 8)
        model = Net()
        FailingBackward(model.layers[3].weight, 1)
        micro_batch = spillway.step(lambda model, rows: model(torch.tanh(rows * last)).sum().backward())
        micro_batch(model, batch(1))
        self.assertEqual(micro_batch.recovery.redone, 1)

    def test_a_split_notices_it_too(self):
        factor = torch.nn.Parameter(torch.ones(8))

        @spillway.step(split=True, attempts=1)
        def micro_batch(model, rows):
            (model(rows) * factor).mean().backward()
            if len(rows) > 2:
                raise shortage()

        with self.assertRaisesRegex(RuntimeError, TOLD.format("")):
            micro_batch(Net().eval(), batch(1))

    def test_objects_are_not_searched_while_nothing_fails(self):
        searched, search = [], gc.get_objects
        gc.get_objects = lambda *arguments: searched.append(1) or search(*arguments)
        self.addCleanup(setattr, gc, "get_objects", search)
        self.call(plain, fails=0)
        self.assertEqual(searched, [])
        self.call(plain, fails=1)
        self.assertEqual(searched, [1])


if __name__ == "__main__":
    unittest.main()
