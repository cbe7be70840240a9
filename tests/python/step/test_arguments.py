"""The arguments of a call that spillway.step redoes: they are what they were, or the call is refused."""
import collections
import collections.abc
import io
import pathlib
import tempfile
import unittest

import torch

from step_case import Case, Net, batch, raised, setUpModule, shortage, tearDownModule
import spillway


def after_a_failure(value, change):
    """The argument after a call that has changed it twice, and was redone."""
    failing = [1]

    @spillway.step
    def micro_batch(model, value):
        change(value)
        if failing:
            failing.pop()
            raise shortage()

    micro_batch(Net(), value)
    return value


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

        values, expected = after_a_failure(new(), change), new()
        change(expected)
        self.assertEqual(values, expected)
        self.assertIsInstance(values["names"], Names)


class Output(collections.OrderedDict):
    """As ModelOutput of transformers."""

    def __init__(self, **values):
        super().__init__()
        self.states = None
        for key, value in values.items():
            self[key] = value

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def _refuse(self, *_, **__):
        raise Exception("You cannot use this method on a ModelOutput instance.")

    update = pop = __delitem__ = setdefault = _refuse


class Own(collections.abc.MutableMapping):
    """A mapping of the caller's own class."""

    def __init__(self, **values):
        self.values_of = values

    def __getitem__(self, key):
        return self.values_of[key]

    def __setitem__(self, key, value):
        self.values_of[key] = value

    def __delitem__(self, key):
        del self.values_of[key]

    def __iter__(self):
        return iter(self.values_of)

    def __len__(self):
        return len(self.values_of)


class Made(Own):
    """Its values are made as they are read, as those of a file."""

    def __getitem__(self, key):
        return super().__getitem__(key) + "!"


class Unread(Own):
    """As a configuration of OmegaConf where a value is missing."""

    def __getitem__(self, key):
        raise KeyError(key)


class Locked(Own):
    def __setitem__(self, key, value):
        raise TypeError("read only")

    __delitem__ = __setitem__


class OwnSet(collections.abc.MutableSet):
    def __init__(self):
        self.all = []

    def __contains__(self, one):
        return one in self.all

    def __iter__(self):
        return iter(self.all)

    def __len__(self):
        return len(self.all)

    def add(self, one):
        self.all.append(one)

    def discard(self, one):
        self.all.remove(one)


class OwnClasses(Case):
    def test_a_mapping_that_is_not_updated_is_put_back(self):
        def change(output):
            self.assertEqual(list(output), ["x"])
            self.assertIsNone(output.states)
            output["states"] = [1]

        output = after_a_failure(Output(x=[0]), change)
        self.assertEqual(list(output), ["x", "states"])

    def test_values_that_are_made_as_they_are_read_are_left_alone(self):
        value = after_a_failure(Made(a="x"), lambda value: value["a"])
        self.assertEqual(value.values_of, {"a": "x"})

    def test_what_cannot_be_put_back_ends_in_the_failure_with_a_reason(self):
        def more(value):
            value.values_of["b"] = "y"

        for value in (Made(a="x"), Locked(a="x")):
            model = Net()
            model.layers[0].weight.grad = before = torch.ones(8, 8)

            def change(value):
                more(value)
                model(batch(0)).sum().backward()

            with self.subTest(type(value)), self.assertRaises(torch.OutOfMemoryError) as raised_error:
                spillway.step(model=model)(lambda value: (change(value), raised()))(value)
            self.assertIn(f"a {type(value).__name__} among its", "".join(raised_error.exception.__notes__))
            self.assertIs(model.layers[0].weight.grad, before)
            self.assertIsNone(model.layers[1].weight.grad)

    def test_a_set_is_put_back(self):
        self.assertEqual(after_a_failure(OwnSet(), lambda value: value.add(len(value))).all, [0])

    def test_what_cannot_be_read_is_passed_as_it_is(self):
        value = Unread(a=1)
        self.assertIs(after_a_failure(value, len), value)

    def test_a_container_may_be_a_part_of_itself(self):
        value = {"list": []}
        value["me"] = value
        value["list"].append(value["list"])
        after_a_failure(value, lambda value: value.update(more=1))
        self.assertEqual(list(value), ["list", "me", "more"])

    def test_one_that_is_a_part_of_itself_is_not_cut(self):
        value = {"rows": torch.ones(2, 8)}
        value["me"] = value
        redone = spillway.step(lambda model, value: raised(), split=True)
        with self.assertRaisesRegex(ValueError, "is a part of itself"):
            redone(Net(), value)

    def test_the_entries_of_a_deque_are_not_looked_into(self):
        read = []

        class Seen(list):
            def __iter__(self):
                read.append(1)
                return super().__iter__()

        after_a_failure(collections.deque([Seen()]), lambda value: value.append(1))
        self.assertEqual(read, [])


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
