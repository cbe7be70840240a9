"""spillway.step(split=...): a micro-batch that does not fit is done in pieces, whose sum is the whole one's."""
import collections.abc
import typing
import unittest

import numpy
import torch

from step_case import Case, FailingBackward, Net, batch, plain, raised, setUpModule, shortage, tearDownModule
import spillway


class Split(Case):
    def gradients(self, function, *arguments, most, **options):
        """Gradients of `function`, undisturbed, and where no more than `most` rows fit; after another micro-batch."""
        def limited(model, rows, *others):
            if len(rows) > most:
                if late:
                    FailingBackward(model.layers[1].weight, 1)
                else:
                    raise shortage()
            return function(model, rows, *others)

        for late in (False, True):
            models = [Net(), Net()]
            for model in models:
                model.eval()  # without dropout and with fixed statistics a split is the same
                plain(model, batch(9))
            expected = function(models[0], *arguments)
            split = spillway.step(limited, attempts=1, **options)
            got = split(models[1], *arguments)
            torch.testing.assert_close(got, expected)
            for one, other in zip(models[0].parameters(), models[1].parameters()):
                torch.testing.assert_close(other.grad, one.grad, rtol=1e-5, atol=1e-7)
            self.assertLessEqual(split.recovery.rows, most)
        return split

    def test_gradients_are_those_of_the_mean_over_all_rows(self):
        for rows in (2, 3, 7):
            for most in (1, 2):
                with self.subTest(rows=rows, most=most):
                    if rows > most:
                        self.gradients(plain, batch(0, rows), most=most, split=True)

    def test_losses_that_are_sums_are_summed(self):
        def summed(model, rows):
            loss = (model(rows) ** 2).sum()
            loss.backward()
            return loss.detach()

        self.gradients(summed, batch(0, 7), most=2, split="sum")

    def test_a_mean_over_targets_is_weighted_by_their_number(self):
        def masked(model, rows, targets):
            kept = (model(rows) ** 2).mean(1)[targets > 0]
            loss = kept.mean()
            loss.backward()
            return {"loss": loss.detach(), "rows": model(rows).detach()}

        self.gradients(masked, batch(0, 5), torch.tensor([1, 1, 0, 1, 1]), most=2, split=True,
                       count=lambda model, rows, targets: int((targets > 0).sum()))

    def test_pieces_stay_small_until_they_are_told_otherwise(self):
        sizes = []

        @spillway.step(split=True, attempts=1)
        def micro_batch(model, rows, names):
            sizes.append((len(rows), len(names)))
            if len(rows) > 4:
                raise shortage()

        model = Net().eval()
        micro_batch(model, batch(0, 8), list("abcdefgh"))
        micro_batch(model, batch(0, 10), list("abcdefghij"))
        micro_batch.recovery.rows = None
        micro_batch(model, batch(0, 4), list("abcd"))
        self.assertEqual(sizes, [(8, 8), (4, 4), (4, 4), (3, 3), (3, 3), (4, 4), (4, 4)])

    def test_one_row_is_not_split(self):
        @spillway.step(split=True, attempts=1)
        def micro_batch(model, rows):
            raise shortage()

        with self.assertRaises(torch.OutOfMemoryError):
            micro_batch(Net(), batch(0, 4))
        self.assertEqual(micro_batch.recovery.rows, 1)

    def test_a_result_that_cannot_be_joined_is_told_at_the_first_call(self):
        for result, told in (("done", "returned a str:"), ({"loss": 1.0, "s": "str"}, r"returned a str in \['s'\]:"),
                             ([0.0, (None, {"a": object()})], r"returned a object in \[1\]\[1\]\['a'\]:")):
            with self.subTest(told), self.assertRaisesRegex(TypeError, told):
                spillway.step(lambda model, rows: result, split=True)(Net(), batch(0))

    def test_results_that_have_other_parts_in_each_piece_are_told(self):
        def returning(result):
            return spillway.step(lambda model, rows: raised() if len(rows) > 3 else result(rows), split=True)

        for result in (lambda rows: rows[:, 0].tolist(), lambda rows: {str(len(rows)): 1.0},
                       lambda rows: {"losses": rows[:, 0].tolist()}):
            with self.assertRaisesRegex(TypeError, "in one piece and .* in another"):
                returning(result)(Net(), batch(0, 5))


class Boxes(typing.NamedTuple):
    boxes: torch.Tensor
    scale: float


class Names(list):
    """A list of a class of its own."""


class Cut(Case):
    """Which of the arguments have a part for each row."""

    ROWS = 8

    def pieces(self, *arguments):
        """The arguments beside the rows, of pieces of two rows."""
        seen = []

        @spillway.step(split=True)
        def micro_batch(model, x, *others):
            if len(x) > 2:
                raise shortage()
            seen.append(others)

        micro_batch(Net(), torch.ones(self.ROWS, 8), *arguments)
        return seen

    def assert_cut(self, value):
        """Into what slices of it are."""
        got = [others[0] for others in self.pieces(value)]
        self.assertEqual(len(got), self.ROWS // 2)
        for index, part in enumerate(got):
            self.assertIs(type(part), type(value))
            self.assertEqual(str(part), str(type(value)(value[2 * index:2 * index + 2])
                                            if isinstance(value, (list, tuple)) else value[2 * index:2 * index + 2]))

    def assert_whole(self, value):
        for others in self.pieces(value):
            self.assertIs(others[0], value)

    def test_what_has_a_part_for_each_row_is_cut(self):
        dictionaries = [{"boxes": torch.ones(number + 1, 4)} for number in range(self.ROWS)]
        tensors = [torch.ones(number + 1, 4) for number in range(self.ROWS)]
        for values in (dictionaries, tensors, [[1] * (number + 1) for number in range(self.ROWS)],
                       [(number, str(number)) for number in range(self.ROWS)], list("abcdefgh"),
                       [Boxes(torch.ones(number + 1, 4), 1.0) for number in range(self.ROWS)]):
            for kind in (list, tuple, Names):
                with self.subTest(kind=kind, of=type(values[0])):
                    self.assert_cut(kind(values))
        self.assert_cut(list(range(self.ROWS)))
        self.assert_cut([(8, 2.0)] * self.ROWS)
        self.assert_cut(numpy.arange(self.ROWS))
        self.assert_cut(numpy.ones((self.ROWS, 3)))
        self.assert_cut(numpy.array([{}] * self.ROWS, dtype=object))

    def test_the_rest_stays_whole(self):
        for value in ("abcdefgh", b"abcdefgh", bytearray(8), set(range(8)), range(8), torch.Size([8] * 8),
                      numpy.ones((3, 8)), numpy.float64(1), torch.tensor(1.0), None, object()):
            with self.subTest(type(value)):
                self.assert_whole(value)

    def test_a_tuple_of_numbers_is_a_size(self):
        for value in ((8,) * 8, (0.5, True, 1) + (1,) * 5):
            for others in self.pieces(value, {"size": value}, [value] * 8):
                self.assertEqual(others, (value, {"size": value}, [value] * 2))
        seen = []
        redone = spillway.step(lambda model, x, size: seen.append(size) if len(x) < 2 else raised(), split=True)
        redone(Net(), torch.ones(2, 8), (224, 224))
        self.assertEqual(seen, [(224, 224)] * 2)

    def test_in_a_structure_every_part_is_cut_by_itself(self):
        x, y, names = torch.ones(self.ROWS, 2), numpy.arange(self.ROWS), list("abcdefgh")
        value = (x, [y, {"names": names, "rate": 0.1}], Boxes(x, 2.0), Names([x]), "abcdefgh")
        for (got,) in self.pieces(value):
            (a, (b, inner), boxes, own, text) = got
            self.assertEqual([len(one) for one in (a, b, inner["names"], boxes.boxes, own[0])], [2] * 5)
            self.assertEqual((inner["rate"], boxes.scale, text), (0.1, 2.0, "abcdefgh"))
            self.assertEqual((type(got), type(boxes), type(own)), (tuple, Boxes, Names))
        self.assertEqual(len(names), self.ROWS)  # the caller's own

    def test_a_mapping_that_is_not_updated_is_cut(self):
        class Output(collections.OrderedDict):
            """As ModelOutput of transformers."""

            def update(self, *_, **__):
                raise NotImplementedError

        output = Output()
        output["x"] = torch.ones(self.ROWS)
        for (got,) in self.pieces(output):
            self.assertEqual((type(got), len(got["x"])), (Output, 2))

    def test_a_dictionary_that_has_its_values_twice_is_cut(self):
        class Attributes(dict):
            def __init__(self, **values):
                super().__init__(**values)
                self.__dict__ = self

        value = Attributes(x=torch.ones(self.ROWS))
        for (got,) in self.pieces(value):
            self.assertEqual((len(got["x"]), len(got.x)), (2, 2))
        self.assertEqual((len(value["x"]), len(value.x)), (8, 8))

    def test_a_mapping_whose_copy_may_share_its_content_is_refused(self):
        class Batch(collections.abc.MutableMapping):
            def __init__(self, **values):
                self.inner = values

            def __getitem__(self, key):
                return self.inner[key]

            def __setitem__(self, key, value):
                self.inner[key] = value

            def __delitem__(self, key):
                del self.inner[key]

            def __iter__(self):
                return iter(self.inner)

            def __len__(self):
                return len(self.inner)

        value = Batch(x=torch.ones(self.ROWS))
        with self.assertRaisesRegex(ValueError, "a Batch among the arguments cannot be cut into rows.*Pass a dict"):
            self.pieces(value)
        self.assertEqual(len(value["x"]), self.ROWS)
        self.pieces(collections.UserDict(x=torch.ones(self.ROWS)))

    def test_a_mapping_is_read_by_its_keys(self):
        class Rows(dict):
            """As TensorDict: it is iterated by rows."""

            def __iter__(self):
                return iter(self["x"])

        value = Rows(x=torch.ones(self.ROWS), y=torch.ones(self.ROWS))
        for (got,) in self.pieces(value):
            self.assertEqual((len(got["x"]), len(got["y"])), (2, 2))

    def test_arrays_alone_are_cut(self):
        seen = []
        redone = spillway.step(lambda *arguments: seen.append([len(one) for one in arguments])
                               if len(arguments[0]) < 3 else raised(), split=True, model=Net())
        redone(numpy.ones((4, 3)), list("abcd"))
        self.assertEqual(seen, [[2, 2]] * 2)

    def test_it_is_told_once_and_before_any_failure_that_nothing_can_be_cut(self):
        redone = spillway.step(lambda texts: None, split=True, model=Net())
        with self.assertLogs("spillway", "WARNING") as told:
            redone(["a", "b"])
            redone(["a", "b"])
        self.assertEqual(len(told.output), 1)
        self.assertIn("no argument is a tensor or an array with rows, so that nothing can be split", told.output[0])
        with self.assertNoLogs("spillway", "WARNING"):
            spillway.step(lambda rows: None, split=True, model=Net())(torch.ones(0, 2))

    def test_what_may_be_either_is_an_error(self):
        cases = {"tensors": [torch.ones(8, 4)] * 8, "a square": [list(range(8))] * 8,
                 "dictionaries": tuple({"views": torch.ones(8)} for _ in range(8))}
        for name, value in cases.items():
            told = rf"argument 3\[0\] is a {type(value).__name__} of 8 parts that have 8 rows each"
            with self.subTest(name), self.assertRaisesRegex(ValueError, told) as raised_error:
                self.pieces([value])
            self.assertIn("zero_grad()", "".join(raised_error.exception.__notes__))

    def test_earlier_pieces_tell_what_it_is(self):
        redone = spillway.step(lambda model, x, *others: seen.append(others) if len(x) < 2 else raised(), split=True)
        for rows, size in ((4, 4), (2, 2)):  # as many parts as the last batch has rows
            seen = []
            x = torch.ones(rows, 8)
            redone(Net(), x, (x, torch.ones(rows)), (224, 224), [torch.ones(2)] * rows)
            self.assertEqual([[len(pair[0]), len(pair[1]), shape, len(parts)] for pair, shape, parts in seen],
                             [[1, 1, (224, 224), 1]] * rows)

    def test_the_first_tensors_own_container_is_a_structure(self):
        seen = []
        redone = spillway.step(lambda model, pair: seen.append([len(one) for one in pair])
                               if len(pair[0]) < 2 else raised(), split=True)
        redone(Net(), [torch.ones(2, 8), torch.ones(2)])
        self.assertEqual(seen, [[1, 1], [1, 1]])

    def test_as_many_arguments_as_rows_are_no_rows(self):
        sizes = []
        redone = spillway.step(lambda model, x, y: sizes.append((len(x), len(y))) if len(x) < 2 else raised(),
                               split=True)
        redone(Net(), torch.ones(3, 8), torch.ones(3))
        redone(Net(), torch.ones(2, 8), y=torch.ones(2))
        self.assertEqual(sizes, [(1, 1)] * 5)


if __name__ == "__main__":
    unittest.main()
