"""spillway.step on the CPU: failures are raised where a test wants them, and the result is an undisturbed call's."""
import gc
import inspect
import random
import unittest
import weakref

import numpy
import torch

from step_case import Case, FailingBackward, Net, batch, plain, raised, setUpModule, shortage, state, tearDownModule
import spillway


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
        class Owner(torch.nn.Linear):
            @spillway.step
            def micro_batch(self, rows, scale=1):
                """Its words."""
                return rows * scale

        self.assertEqual(Owner(1, 1).micro_batch(2, scale=3), 6)
        self.assertEqual(list(inspect.signature(Owner.micro_batch).parameters), ["self", "rows", "scale"])
        self.assertEqual((Owner.micro_batch.__name__, Owner.micro_batch.__doc__), ("micro_batch", "Its words."))


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

    def test_an_error_within_the_handling_of_a_shortage_is_none(self):
        calls = []

        @spillway.step(model=Net())
        def work(error):
            calls.append(1)
            if len(calls) < 2:
                raise error

        for error, count in ((ValueError("shapes"), 1), (shortage(), 2)):
            calls.clear()
            try:
                raised()
            except torch.OutOfMemoryError:
                if count == 1:
                    with self.assertRaisesRegex(ValueError, "shapes"):
                        work(error)
                else:
                    work(error)
            self.assertEqual((len(calls), work.recovery.failures), (count, count - 1))

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

        @spillway.step(model=model)
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

    def test_a_wrapper_that_is_made_after_the_first_call_is_seen(self):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        self.addCleanup(torch.distributed.destroy_process_group)
        model, failing = torch.nn.Linear(8, 8), []
        called = [model]

        @spillway.step(model=model)
        def work(rows):
            called[-1](rows)
            if failing:
                failing.pop()
                raise shortage()

        work(batch(0))
        called.append(torch.nn.parallel.DistributedDataParallel(model))
        for failures in (1, 2):
            failing.append(1)
            with self.assertRaisesRegex(torch.OutOfMemoryError, "Tried to allocate") as raised_error:
                work(batch(0))
            self.assertIn("the collectives of its modules cannot be", "".join(raised_error.exception.__notes__))
            self.assertEqual(work.recovery.failures, failures)

    def test_options_that_mean_nothing_are_refused(self):
        for wrong in ({"attempts": 0}, {"split": "max"}):
            with self.assertRaises(ValueError):
                spillway.step(lambda: None, **wrong)
        for wrong, told in (({"attempts": "3"}, "attempts is '3', and must be a whole number"),
                            ({"make_room": 3}, "make_room has 3, and must be a function"),
                            ({"make_room": [gc.collect, 3]}, "make_room has 3")):
            with self.assertRaisesRegex(TypeError, told):
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


if __name__ == "__main__":
    unittest.main()
