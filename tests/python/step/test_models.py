"""spillway.step(model=...): whose gradients a call computes, and what is refused because it says nothing of that."""
import unittest

import torch

from step_case import Case, Net, batch, setUpModule, shortage, tearDownModule
import spillway


class Model(Case):
    def assert_redone(self, new_model, of=lambda model: model, change=lambda model: None):
        """The second and third micro-batch fail after their backward pass, and leave the gradients of an undisturbed
        run; `change` is called between these two."""
        outcomes = []
        for fails in (False, True):
            torch.manual_seed(3)
            model = new_model()
            failing = []

            @spillway.step(model=of(model))
            def micro_batch(rows):
                model(rows).square().mean().backward()
                if failing:
                    failing.pop()
                    raise shortage()

            for call in range(3):
                failing += [1] * (fails and call > 0)
                micro_batch(batch(call))
                if call == 1:
                    change(model)
            outcomes.append([one.grad for one in model.parameters()])
        self.assert_same(*outcomes)
        self.assertEqual(micro_batch.recovery.redone, 2)

    def test_it_says_in_any_form_whose_gradients_are_meant(self):
        forms = {
            "module": lambda model: model,
            "list of tensors": lambda model: list(model.parameters()),
            "generator": lambda model: model.parameters(),
            "filter": lambda model: filter(lambda one: one.requires_grad, model.parameters()),
            "names with tensors": lambda model: model.named_parameters(),
            "names with modules": lambda model: dict(model.named_children()),
            "names with generators": lambda model: {"net": model.parameters()},
            "a list in a list": lambda model: [[model[0]], (model[1],)],
            "optimizer": lambda model: torch.optim.SGD(model.parameters(), 1),
            "optimizer's groups": lambda model: torch.optim.SGD(model.parameters(), 1).param_groups,
        }
        for name, of in forms.items():
            with self.subTest(name):
                self.assert_redone(lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)), of)

    def test_one_decorator_serves_several_functions(self):
        decorate = spillway.step(model=torch.nn.Linear(1, 1).parameters())
        self.assertEqual([decorate(lambda: 1)(), decorate(lambda: 2)()], [1, 2])

    def test_parameters_that_come_later_are_known(self):
        def more(model):
            model.append(torch.nn.Linear(2, 2))

        self.assert_redone(lambda: torch.nn.Sequential(torch.nn.Linear(8, 2)), change=more)

    def test_an_optimizers_later_groups_are_known(self):
        optimizers = []

        def of(model):
            optimizers.append(torch.optim.SGD(model[0].parameters(), 1))
            return optimizers[-1]

        self.assert_redone(lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)), of=lambda model: (
            of(model), optimizers[-1].add_param_group({"params": list(model[1].parameters())}))[0])

    def test_what_is_no_model_is_refused_by_name(self):
        cases = [("a model", "str 'a model'"), ([torch.nn.Linear(1, 1), 3], "int 3"), ({"net": None}, "NoneType None"),
                 (lambda: 1, "function"), ([("weight", "bias")], "str 'bias'")]
        for wrong, told in cases:
            with self.subTest(told), self.assertRaisesRegex(TypeError, f"model has the {told}.* it takes modules"):
                spillway.step(model=wrong)

    def test_a_model_without_any_tensor_is_refused(self):
        for wrong in ([], {}, iter(()), [[], {}]):
            with self.subTest(type(wrong)), self.assertRaisesRegex(ValueError, "model has no module and no tensor"):
                spillway.step(model=wrong)

    def test_a_tensor_that_gets_no_gradient_of_its_own_is_refused(self):
        with self.assertRaisesRegex(ValueError, r"tensor of shape \[2\].* is computed from others"):
            spillway.step(lambda: None, model=[torch.nn.Parameter(torch.ones(2)) * 2])


class AmongTheArguments(Case):
    def test_a_module_is_needed(self):
        with self.assertRaisesRegex(TypeError, "no module is among the arguments"):
            spillway.step(lambda rows: rows)(batch(0))

    def test_a_module_with_nothing_to_train_is_not_enough(self):
        loss = spillway.step(lambda criterion, rows: criterion(rows, rows))
        with self.assertRaisesRegex(TypeError, "no module with a parameter that requires a gradient is .*MSELoss has"):
            loss(torch.nn.MSELoss(), batch(0))

    def test_a_frozen_model_is_enough_where_gradients_are_off(self):
        model = Net().requires_grad_(False).eval()
        evaluated = spillway.step(lambda model, rows: model(rows))
        with torch.no_grad():
            self.assertTrue(torch.equal(evaluated(model, batch(0)), model(batch(0))))

    def test_the_model_beside_a_loss_is_enough(self):
        @spillway.step
        def micro_batch(criterion, model, rows):
            criterion(model(rows), rows).backward()

        micro_batch(torch.nn.MSELoss(), Net(), batch(0))


if __name__ == "__main__":
    unittest.main()
