"""The objects in `restore`: what a failed run changed in them is put back, or they are refused at decoration."""
import threading
import unittest

import torch

from step_case import Case, Net, batch, setUpModule, shortage, tearDownModule  # noqa: F401
import spillway


class Live:
    """Returns and keeps its own state, and no copy."""

    def __init__(self):
        self.state = {"seen": [], "mean": torch.zeros(2)}

    def see(self):
        self.state["seen"].append(len(self.state["seen"]))
        self.state["mean"] += 1

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


class Loader(Live):
    """As a StatefulDataLoader: it can be iterated."""

    def __iter__(self):
        raise AssertionError("the data are read")


class PutBack(Case):
    def after_failures(self, change, failures=2, **options):
        """A call that has changed something, and was redone as often as it failed."""
        failing = [1] * failures

        @spillway.step(make_room=lambda: True, **options)
        def micro_batch():
            change()
            if failing:
                failing.pop()
                raise shortage()

        micro_batch()
        self.assertEqual(micro_batch.recovery.failures, failures)
        return micro_batch

    def test_what_an_object_returns_and_keeps_as_its_own(self):
        live = Live()
        self.after_failures(live.see, model=Net(), restore=[live])
        self.assertEqual(live.state["seen"], [0])
        self.assertEqual(live.state["mean"].tolist(), [1.0, 1.0])

    def test_a_modules_buffers(self):
        norm, expected = torch.nn.BatchNorm1d(8), torch.nn.BatchNorm1d(8)
        expected(batch(0))
        self.after_failures(lambda: norm(batch(0)), model=norm.weight, restore=[torch.nn.Sequential(norm)])
        self.assert_same(list(norm.buffers()), list(expected.buffers()))

    def test_one_object_without_brackets(self):
        for one in (Loader(), torch.nn.ModuleList([torch.nn.BatchNorm1d(8)])):
            change = one.see if isinstance(one, Loader) else lambda: one[0](batch(0))
            with self.subTest(type(one)):
                self.after_failures(change, model=Net(), restore=one)
                counted = len(one.state["seen"]) if isinstance(one, Loader) else one[0].num_batches_tracked
                self.assertEqual(counted, 1)

    def test_an_iterator_of_objects_serves_several_functions(self):
        live = Live()
        decorate = spillway.step(model=Net(), restore=iter([live]))
        for call in range(2):
            failing = [1]
            decorate(lambda: (live.see(), failing.pop(), self.fail_once()) if failing else live.see())()
            self.assertEqual(live.state["seen"], list(range(call + 1)))

    def fail_once(self):
        raise shortage()


class Refused(Case):
    def test_what_cannot_be_put_back_is_refused_at_decoration(self):
        optimizer = torch.optim.Adam(Net().parameters())
        for wrong, told in (([[]], "list in `restore` has neither"), (3, "int in `restore` has neither"),
                            ({"loader": Live()}, "str in `restore` has neither"),
                            (optimizer, r"an optimizer \(Adam\) is in `restore`: .* outside the function"),
                            ([Live(), optimizer], r"an optimizer \(Adam\)")):
            with self.subTest(told), self.assertRaisesRegex(TypeError, told):
                spillway.step(model=Net(), restore=wrong)

    def test_what_is_refused_is_not_read_to_its_end(self):
        read = []
        with self.assertRaisesRegex(TypeError, "int in `restore` has neither"):
            spillway.step(model=Net(), restore=(read.append(one) or one for one in range(3)))
        self.assertEqual(read, [0])

    def test_a_state_that_cannot_be_copied_is_told(self):
        live = Live()
        live.state["lock"] = threading.Lock()
        with self.assertRaisesRegex(TypeError, "the state of a Live in `restore` cannot be copied"):
            spillway.step(lambda: None, model=Net(), restore=[live])()


if __name__ == "__main__":
    unittest.main()
