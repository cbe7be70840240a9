"""spillway.step on the CPU: failures are raised where a test wants them, and the result is an undisturbed call's."""
import gc
import inspect
import logging
import pathlib
import random
import sys
import unittest
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import numpy  # noqa: E402
import torch  # noqa: E402

import spillway  # noqa: E402

logging.getLogger("spillway").setLevel(logging.CRITICAL)


def setUpModule():
    torch.set_num_threads(1)
    gc.freeze()  # what was imported: a collection takes 0.3 s otherwise


def tearDownModule():
    gc.unfreeze()


def shortage():
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")


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


class Step(Case):
    def test_a_failure_in_the_backward_pass_changes_no_bit(self):
        for layer in range(4):
            with self.subTest(layer):
                recovery = self.compare(plain, fail=lambda model: FailingBackward(model.layers[layer].weight, 1))
                self.assertEqual((recovery.failures, recovery.redone), (3, 3))

    def test_a_second_failure_in_the_redo_changes_none_either(self):
        def fail(model):
            FailingBackward(model.layers[2].weight, 1)
            FailingBackward(model.layers[0].weight, 2)
        recovery = self.compare(plain, fail=fail, make_room=lambda: True)
        self.assertEqual((recovery.failures, recovery.redone), (9, 3))

    def test_several_backward_passes_in_a_call_are_counted_each(self):
        def twice(model, rows):
            loss = (model(rows) ** 2).mean()
            loss.backward()
            other = model(rows).abs().mean()
            other.backward()
            return loss.detach() + other.detach()

        for times in (1, 2):
            with self.subTest(times):
                def fail(model):
                    skipped = iter([False] * (times - 1) + [True])
                    model.layers[1].weight.register_hook(lambda _: raised() if next(skipped, False) else None)
                self.compare(twice, fail=fail)

    def test_random_numbers_are_drawn_again_as_they_were(self):
        def drawing(model, rows):
            drawn = random.random() + numpy.random.rand() + torch.rand(()).item()
            loss = (model(rows) ** 2).mean() * drawn
            loss.backward()
            return loss.detach()

        self.compare(drawing, fail=lambda model: FailingBackward(model.layers[0].weight, 1))

    def test_what_the_caller_names_is_put_back(self):
        generator, loader, seen = torch.Generator().manual_seed(2), Loader(), []

        @spillway.step(model=Net(), restore=[generator, loader])
        def draw():
            seen.append((torch.rand((), generator=generator).item(), loader.draw()))
            if len(seen) == 1:
                raise shortage()

        draw()
        self.assertEqual(seen[0], seen[1])
        with self.assertRaisesRegex(TypeError, "list in `restore` has neither"):
            spillway.step(model=Net(), restore=[[]])(lambda: None)()

    def test_containers_among_the_arguments_are_put_back(self):
        @spillway.step
        def consuming(model, inputs, losses):
            rows = inputs.pop("rows")
            losses.append(1)
            if not failures:
                failures.append(1)
                raise shortage()
            return rows

        failures, losses = [], []
        self.assertEqual(consuming(Net(), {"rows": 3}, losses), 3)
        self.assertEqual(losses, [1])

    def test_gradients_that_the_function_drops_itself_are_no_obstacle(self):
        def whole(model, rows):
            model.zero_grad()
            return plain(model, rows)

        self.compare(whole, fail=lambda model: FailingBackward(model.layers[1].weight, 1))

    def test_gradients_that_the_function_zeroes_in_place_are_an_error(self):
        model = Net()
        plain(model, batch(0))

        @spillway.step
        def whole(model, rows):
            model.zero_grad(set_to_none=False)
            return plain(model, rows)

        FailingBackward(model.layers[1].weight, 1)
        with self.assertRaisesRegex(RuntimeError, "Call zero_grad"):
            whole(model, batch(0))

    def test_hooks_of_a_redo_do_not_stay(self):
        model = Net()
        redone = spillway.step(plain)
        redone(model, batch(0))
        FailingBackward(model.layers[0].weight, 1)
        redone(model, batch(1))
        before = state(model)
        plain(model, batch(2))
        self.assertFalse(torch.equal(before[0], model.layers[0].weight.grad))

    def test_a_scalers_state_is_as_without_a_redo(self):
        scalers = []

        def scaled(model, rows):
            if not model.scaler:
                model.scaler.append(torch.amp.GradScaler("cpu", init_scale=1024.0))
                scalers.append(model.scaler[0])
            loss = (model(rows) ** 2).mean()
            model.scaler[0].scale(loss).backward()
            return loss.detach()

        class Scaled(Net):
            def __init__(self):
                super().__init__()
                self.scaler = []

        self.compare(scaled, fail=lambda model: FailingBackward(model.layers[1].weight, 1), new=Scaled)
        self.assertEqual(*[one.state_dict() for one in scalers])

    def test_it_stays_a_function_and_a_method(self):
        class Owner(torch.nn.Module):
            @spillway.step
            def micro_batch(self, rows, scale=1):
                """Its words."""
                return rows * scale

        self.assertEqual(Owner().micro_batch(2, scale=3), 6)
        self.assertEqual(list(inspect.signature(Owner.micro_batch).parameters), ["self", "rows", "scale"])
        self.assertEqual((Owner.micro_batch.__name__, Owner.micro_batch.__doc__), ("micro_batch", "Its words."))


def raised():
    raise shortage()


class Loader:
    """As a StatefulDataLoader: a position that can be noted."""

    def __init__(self):
        self._position = 0

    def draw(self):
        self._position += 1
        return self._position

    def state_dict(self):
        return {"position": self._position}

    def load_state_dict(self, state):
        self._position = state["position"]


class Errors(Case):
    def test_the_failed_works_tensors_are_gone_when_room_is_made(self):
        alive = []

        @spillway.step(model=Net(), make_room=lambda: alive.append([one() is not None for one in kept]))
        def work():
            activation = torch.ones(3)
            kept.append(weakref.ref(activation))
            if len(kept) < 3:
                try:
                    raise shortage()
                except RuntimeError as error:
                    raise ValueError("an operator failed") from error

        kept = []
        work()
        self.assertEqual(alive, [[False, False]])

    def test_room_is_asked_for_in_order_and_not_without_end(self):
        asked = []

        def giver(name, gives):
            def make_room():
                asked.append(name)
                if gives.pop(0):
                    return None
                return False
            return make_room

        @spillway.step(model=Net(), make_room=[giver("a", [1, 0, 0]), giver("b", [1, 0])])
        def never():
            raise shortage()

        with self.assertRaisesRegex(torch.OutOfMemoryError, "Tried to allocate 2.00 MiB") as raised_error:
            never()
        self.assertEqual(asked, ["a", "a", "b"])  # the fourth attempt was the last
        self.assertEqual(never.recovery.failures, 4)
        self.assertIn("call zero_grad()", "".join(raised_error.exception.__notes__))

    def test_without_room_there_is_one_redo(self):
        for make_room in ((), lambda: False, lambda: raised()):
            function = spillway.step(lambda: raised(), model=Net(), make_room=make_room)
            with self.assertRaises(torch.OutOfMemoryError):
                function()
            self.assertEqual(function.recovery.failures, 2)

    def test_other_errors_pass_through(self):
        calls = []

        @spillway.step(model=Net())
        def broken():
            calls.append(1)
            raise RuntimeError("shapes do not match")

        with self.assertRaisesRegex(RuntimeError, "shapes"):
            broken()
        self.assertEqual(len(calls), 1)

    def test_what_cannot_be_put_back_is_not_redone(self):
        rows = batch(0)

        @spillway.step
        def in_place(model, rows):
            rows.add_(1)
            raise shortage()

        with self.assertRaises(torch.OutOfMemoryError):
            in_place(Net(), rows)
        self.assertEqual(in_place.recovery.failures, 1)

    def test_a_buffer_that_began_to_change_is_not_redone_once_and_then_is(self):
        model = torch.nn.Module()
        model.register_buffer("count", torch.zeros(()))
        failing = []

        @spillway.step
        def counting(model, changes):
            if changes:
                model.count.add_(1)
            if failing:
                failing.pop()
                raise shortage()

        counting(model, False)
        failing.append(1)
        with self.assertRaises(torch.OutOfMemoryError):
            counting(model, True)
        counting(model, True)
        failing.append(1)
        counting(model, True)
        self.assertEqual(model.count.item(), 3)  # of the call that was not redone too

    def test_a_backward_pass_that_other_ranks_wait_for_is_not_redone(self):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        self.addCleanup(torch.distributed.destroy_process_group)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        failing = [1]

        @spillway.step
        def work(model, rows):
            loss = model(rows).sum()
            if failing:
                failing.pop()
                raise shortage()
            loss.backward()

        with model.no_sync():
            work(model, batch(0))
            self.assertEqual(work.recovery.redone, 1)
        failing.append(1)
        with self.assertRaises(torch.OutOfMemoryError):
            work(model, batch(0))

    def test_a_function_needs_a_module(self):
        with self.assertRaisesRegex(TypeError, "no module is among the arguments"):
            spillway.step(lambda rows: rows)(batch(0))
        for wrong in ({"attempts": 0}, {"split": "max"}):
            with self.assertRaises(ValueError):
                spillway.step(lambda: None, **wrong)

    def test_shortages_are_known_by_class_text_and_cause(self):
        for text in ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                     "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"):
            self.assertTrue(spillway.is_out_of_memory(RuntimeError(text)), text)
        try:
            try:
                raise shortage()
            except RuntimeError:
                raise KeyError("in a data structure")
        except KeyError as error:
            self.assertTrue(spillway.is_out_of_memory(error))
        for other in (RuntimeError("shapes"), ValueError("CUDA out of memory"), KeyError(1)):
            self.assertFalse(spillway.is_out_of_memory(other))


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
        with self.assertRaisesRegex(TypeError, "returned a str"):
            spillway.step(lambda model, rows: "done", split=True)(Net(), batch(0))


if __name__ == "__main__":
    unittest.main()
