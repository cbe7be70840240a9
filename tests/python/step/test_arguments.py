"""The arguments of a call that spillway.step redoes: they are what they were, or the call is refused."""
import collections
import io
import pathlib
import tempfile
import unittest

import torch

from step_case import Case, Net, batch, setUpModule, shortage, tearDownModule
import spillway


class Loader:
    """As an iterator of a StatefulDataLoader: a position that can be noted."""

    def __init__(self):
        self.position = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.position += 1
        return self.position

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Containers(Case):
    def test_they_are_put_back_at_any_depth(self):
        class Names(list):
            pass

        def new():
            return {"list": [1], "names": Names("ab"), "set": {1}, "last": collections.deque([1, 2], maxlen=2),
                    "bytes": bytearray(b"a"), "pair": ({"inner": [1]},), "ordered": collections.OrderedDict(a=1)}

        def change(values):
            values["list"].append(2)
            values["names"].pop()
            values["set"].add(2)
            values["last"].append(3)
            values["bytes"].extend(b"b")
            values["pair"][0]["inner"].clear()
            values["ordered"]["b"] = 2

        failing = [1]

        @spillway.step
        def micro_batch(model, values):
            change(values)
            if failing:
                failing.pop()
                raise shortage()

        values, expected = new(), new()
        change(expected)
        micro_batch(Net(), values)
        self.assertEqual(values, expected)
        self.assertIsInstance(values["names"], Names)


class Iterators(Case):
    def refuse(self, told, *arguments, **named):
        called = []

        @spillway.step
        def micro_batch(model, *rows, **more):
            called.append(1)

        with self.assertRaisesRegex(TypeError, f"micro_batch is given an iterator, a {told}: .* before the call"):
            micro_batch(Net(), *arguments, **named)
        self.assertEqual(called, [])

    def test_what_would_give_another_batch_is_refused_at_the_first_call(self):
        batches = [batch(0)]
        self.refuse("list_iterator", iter(batches))
        self.refuse("generator", (one for one in batches))
        self.refuse("zip", rows=zip(batches, batches))
        self.refuse("enumerate", {"loaders": [enumerate(batches)]})
        self.refuse("_SingleProcessDataLoaderIter", iter(torch.utils.data.DataLoader(batches)))
        self.refuse("StringIO", io.StringIO("lines"))

    def test_one_that_is_put_back_is_not(self):
        loader, seen = Loader(), []

        @spillway.step(restore=[loader])
        def micro_batch(model, batches):
            seen.append(next(batches))
            if len(seen) == 1:
                raise shortage()

        micro_batch(Net(), loader)
        self.assertEqual(seen, [1, 1])

    def test_a_file_that_is_written_is_not(self):
        with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "w") as log:
            spillway.step(lambda model, log: log.write("a"))(Net(), log)

    def test_what_can_be_read_from_its_beginning_is_not(self):
        spillway.step(lambda model, batches: next(iter(batches)))(Net(), [batch(0)])
        spillway.step(lambda model, batches: next(iter(batches)))(Net(), torch.utils.data.DataLoader([batch(0)]))


if __name__ == "__main__":
    unittest.main()
