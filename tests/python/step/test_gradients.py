"""Functions that change gradients after their backward pass: they are redone exactly, or are an error."""
import threading
import unittest
import warnings

import torch

from step_case import Case, FailingBackward, Net, batch, plain, setUpModule, shortage, tearDownModule
import spillway
from spillway._unchanged import Unchanged


def clipped(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def clipped_one_by_one(model):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


def halved(model):
    for parameter in model.parameters():
        parameter.grad.div_(2)


def noisy(model):
    for parameter in model.parameters():
        parameter.grad.add_(torch.randn_like(parameter))


def replaced(model):
    for parameter in model.parameters():
        parameter.grad = parameter.grad / 2


def second_order(model, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cycle between a parameter and its gradient
        model(rows).square().mean().backward(create_graph=True)


CHANGES = (clipped, clipped_one_by_one, halved, noisy, replaced)


class Changed(Case):
    def outcome(self, change, before, fails, after=True, times=1, **options):
        """The gradients of a micro-batch whose function ends with `change`; `before` is done before the call."""
        model, failing = Net(), [1] * (fails and times)
        before(model)
        torch.manual_seed(2)

        @spillway.step(make_room=lambda: True, **options)
        def micro_batch(model, rows):
            loss = plain(model, rows)
            change(model)
            if after and failing:
                failing.pop()
                raise shortage()
            return loss

        if not after and fails:
            FailingBackward(model.layers[1].weight, 1)
        micro_batch(model, batch(1))
        return state_of(model)

    def test_nothing_is_lost_where_there_was_no_gradient(self):
        for change in CHANGES:
            for times in (1, 2):
                with self.subTest(change.__name__, times=times):
                    self.assert_same(*(self.outcome(change, lambda model: None, fails, times=times)
                                       for fails in (False, True)))

    def test_a_failure_before_the_change_is_redone(self):
        for change in CHANGES:
            with self.subTest(change.__name__):
                self.assert_same(*(self.outcome(change, accumulated, fails, after=False) for fails in (False, True)))

    def test_a_failure_after_the_change_is_an_error(self):
        for change in CHANGES:
            for before in (accumulated, zeros):
                for times in (1, 2):
                    with self.subTest(change.__name__, before=before.__name__, times=times), \
                         self.assertRaisesRegex(RuntimeError, "something else than the backward pass .*zero_grad"):
                        self.outcome(change, before, True, times=times)

    def test_a_change_between_two_backward_passes_is_an_error(self):
        model, failing = Net(), [1]
        accumulated(model)

        @spillway.step
        def micro_batch(model, rows):
            plain(model, rows)
            halved(model)
            if failing:
                failing.pop()
                raise shortage()
            plain(model, rows)

        with self.assertRaisesRegex(RuntimeError, "something else than the backward pass"):
            micro_batch(model, batch(1))

    def test_a_gradient_that_autograd_replaces_is_an_error(self):
        """With create_graph it adds out of place, and the gradient of earlier micro-batches is gone."""
        model, failing = torch.nn.Linear(8, 1), [1]
        model(batch(0)).sum().backward()

        @spillway.step
        def micro_batch(model, rows):
            second_order(model, rows)
            if failing:
                failing.pop()
                raise shortage()

        with self.assertRaisesRegex(RuntimeError, "something else than the backward pass"):
            micro_batch(model, batch(1))
        model.zero_grad(set_to_none=False)

    def test_gradients_whose_changes_are_counted_together_are_not_redone(self):
        """As parts of one tensor they have one count, which does not tell which of them has had the micro-batch."""
        model = Net()
        parameters = list(model.parameters())
        parts = torch.zeros(sum(one.numel() for one in parameters)).split([one.numel() for one in parameters])
        for parameter, part in zip(parameters, parts):
            parameter.grad = part.view_as(parameter)
        FailingBackward(model.layers[2].weight, 1)
        redone = spillway.step(plain)
        with self.assertRaises(torch.OutOfMemoryError), self.assertLogs("spillway", "ERROR") as logs:
            redone(model, batch(1))
        self.assertIn("parts of one tensor", logs.output[0])
        self.assertEqual(redone.recovery.failures, 1)


class Threads(Case):
    def test_one_devices_thread_waits_while_another_looks(self):
        """Autograd's threads of two devices come to what the failed run had not had at once."""
        model = torch.nn.Linear(2, 2)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        unchanged = Unchanged()
        unchanged.begin({parameter: 0 for parameter in model.parameters()})
        look, looking, go_on = unchanged._now, threading.Event(), threading.Event()

        def slow():
            looking.set()
            go_on.wait(10)
            return look()

        def add():
            unchanged.overtaken()
            model.weight.grad.add_(1)

        unchanged._now = slow
        threads = [threading.Thread(target=unchanged.overtaken), threading.Thread(target=add)]
        threads[0].start()
        looking.wait(10)
        unchanged._now = look
        threads[1].start()
        threads[1].join(0.2)
        go_on.set()
        for thread in threads:
            thread.join(10)
        unchanged.check()


def state_of(model):
    return [one.grad for one in model.parameters()]


def accumulated(model):
    plain(model, batch(0))


def zeros(model):
    plain(model, batch(0))
    model.zero_grad(set_to_none=False)


class Pieces(Case):
    def split(self, function, split, before=lambda model: None):
        model = Net().eval()
        before(model)

        def limited(model, rows):
            if len(rows) > 2:
                raise shortage()
            function(model, rows)

        spillway.step(limited, split=split)(model, batch(1))

    def test_what_is_done_once_for_all_rows_is_an_error_in_pieces(self):
        def then(change):
            return lambda model, rows: (plain(model, rows), change(model))

        def zeroed(model, rows):
            model.zero_grad()
            plain(model, rows)

        functions = {change.__name__: then(change) for change in CHANGES if change is not replaced}
        functions.update(zeroed=zeroed, dropped=then(lambda model: model.zero_grad()))
        for name, function in functions.items():
            for split in ("mean", "sum"):
                for before in (lambda model: None, accumulated):
                    with self.subTest(name, split=split), \
                         self.assertRaisesRegex(RuntimeError, "something else than the backward pass"):
                        self.split(function, split, before)

    def test_a_graph_of_gradients_is_none(self):
        self.split(second_order, "mean")


class Scaler(Case):
    def outcome(self, fails, before, name_it=True, update=False):
        model, failing = Net(), [1] * fails
        scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=1024.0), torch.optim.SGD(model.parameters(), 0.1)
        before(model)
        torch.manual_seed(2)

        @spillway.step(restore=[scaler] * name_it)
        def micro_batch(model, rows):
            scaler.scale((model(rows) ** 2).mean()).backward()
            scaler.unscale_(optimizer)
            clipped(model)
            if update:
                scaler.update()
            if failing:
                failing.pop()
                raise shortage()

        micro_batch(model, batch(1))
        scaler.step(optimizer)
        scaler.update()
        return [*(one.detach() for one in model.parameters()), torch.tensor(scaler.get_scale())]

    def test_one_that_is_named_forgets_that_gradients_are_unscaled(self):
        self.assert_same(*(self.outcome(fails, lambda model: None) for fails in (False, True)))

    def test_gradients_of_earlier_micro_batches_cannot_be_scaled_again(self):
        with self.assertRaisesRegex(RuntimeError, "something else than the backward pass"):
            self.outcome(True, accumulated)

    def test_an_update_cannot_be_undone(self):
        with self.assertRaises(torch.OutOfMemoryError):
            self.outcome(True, lambda model: None, update=True)

    def test_an_error_of_a_redo_says_that_it_is_one(self):
        with self.assertRaisesRegex(RuntimeError, r"unscale_\(\) has already been called") as raised_error:
            self.outcome(True, lambda model: None, name_it=False)
        self.assertIn("was done again", "".join(raised_error.exception.__notes__))
        self.assertIn("`restore`", "".join(raised_error.exception.__notes__))


if __name__ == "__main__":
    unittest.main()
