"""spillway.step on several ranks under DDP and fully_shard: a failure on one of them changes no bit, or stops all."""
import gc
import importlib
import logging
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import forked_ranks  # noqa: E402
import spillway  # noqa: E402
from ends_of_ranks import Deaths, Processes, Waits  # noqa: E402, F401
from ranks_case import Case  # noqa: E402
from training_of_ranks import Training, at, shortage  # noqa: E402

logging.getLogger("spillway").setLevel(logging.CRITICAL)


def setUpModule():
    torch.set_num_threads(1)
    # What ranks would import, each for itself.
    importlib.import_module("torch._dynamo")
    model = torch.nn.Linear(1, 1)
    model(torch.ones(1)).backward()
    torch.optim.AdamW(model.parameters()).step()
    gc.freeze()


def tearDownModule():
    gc.unfreeze()


PLACES = [(where, layer) for where in ("forward", "backward") for layer in (0, 2)]


def two_rows_from_step_1(*ranks):
    def before(step, function):
        if step == 1 and dist.get_rank() in ranks:
            function.recovery.rows = 2

    return before


def unwrapped(rank, size):
    """Whether the gradients stay the rank's own, as without spillway.step."""
    model = torch.nn.Linear(2, 2)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    rows = torch.full((1, 2), float(rank + 1))
    spillway.step(lambda: wrapped.module(rows).sum().backward(), model=model)()
    return torch.equal(model.weight.grad, rows.expand(2, 2))


def in_a_handler(rank, size):
    """A call within the handling of a shortage, in which rank 1 has another error."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))

    @spillway.step(model=model, ranks_bound=3.0)
    def work():
        if rank:
            raise ValueError("shapes")
        model(torch.ones(1, 2)).sum().backward()

    try:
        raise shortage()
    except torch.OutOfMemoryError:
        work()


class Replicas(Case):
    def test_nothing_changes_a_bit_where_nothing_fails(self):
        variants = [{}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.0001}]
        cases = [*({"ddp": one} for one in variants), {"ddp": {"find_unused_parameters": True}, "unused": True}]
        got = self.train(3, "ddp", *({**case, "stock": stock} for case in cases for stock in (True, False)))
        for stock, redone in zip(got[::2], got[1::2]):
            self.assert_same(stock, redone)

    def test_a_failure_on_one_rank_changes_no_bit(self):
        for size, failed in ((2, 0), (3, 2)):
            undisturbed, *got = self.train(size, "ddp", {"stock": True},
                                           *({"fault": {failed: at(*place)}} for place in PLACES))
            for place, one in zip(PLACES, got):
                with self.subTest(size=size, place=place):
                    self.assert_same(one, undisturbed)
                    self.assertEqual([rank[2] for rank in one],
                                     [(int(rank == failed),) * 2 + (None,) for rank in range(size)])

    def test_a_wrapper_that_is_not_named_is_known(self):
        names = {"optimizer": lambda model, optimizer: optimizer, "inside": lambda model, optimizer: model.module,
                 "parameters": lambda model, optimizer: model.parameters()}
        undisturbed, *got = self.train(2, "ddp", {"stock": True}, *(
            {"fault": {1: at("backward", layer)}, "named": named} for named in names.values() for layer in (0, 2)))
        for one in got:
            self.assert_same(one, undisturbed)
            self.assertEqual([rank[2][:2] for rank in one], [(0, 0), (1, 1)])

    def test_a_module_that_is_run_without_its_wrapper_is_not_reduced(self):
        for outcome in forked_ranks.run(2, unwrapped):
            self.assertIsNone(outcome.error, getattr(outcome.error, "lines", ""))
            self.assertTrue(outcome.value)

    def test_one_rank_is_redone_and_splits(self):
        undisturbed, *got = self.train(1, "ddp", {"stock": True}, *({"fault": {0: at(*place)}} for place in PLACES))
        for place, one in zip(PLACES, got):
            with self.subTest(place):
                self.assert_same(one, undisturbed)
                self.assertEqual(one[0][2], (1, 1, None))
        split, expected = self.train(1, "ddp", {"split": True, "fault": {0: at("backward", 1, times=100, most=2)}},
                                     {"split": True, "before": two_rows_from_step_1(0)})
        self.assert_same(split, expected)

    def test_a_rank_splits_alone(self):
        split, expected = self.train(3, "ddp", {"split": True, "fault": {1: at("backward", 1, times=100, most=2)}},
                                     {"split": True, "before": two_rows_from_step_1(1)})
        self.assert_same(split, expected)
        self.assertEqual([one[2][2] for one in split], [None, 2, None])

    def test_all_stop_where_a_parameter_is_not_used(self):
        failed, other = forked_ranks.run(2, Training("ddp", unused=True))
        self.assertRegex(str(other.error), "unused.0.weight, unused.0.bias, unused.1.weight, unused.1.bias. Wrap")
        self.assertIn(other.error.__notes__[0], failed.error.__notes__[0])
        self.assertRegex(str(failed.error), "unused.1.weight, unused.1.bias. Wrap")

    def test_all_are_told_of_another_error_within_the_handling_of_a_shortage(self):
        other, failed = forked_ranks.run(2, in_a_handler)
        self.assertIsInstance(failed.error, ValueError)
        self.assertIn("ended by ValueError: shapes", other.error.cause)

    def test_all_stop_where_one_has_no_room(self):
        outcomes = self.stopped(3, "ddp", 1, fault={1: at("backward", 1, times=100)})
        self.assert_no_step(outcomes[1], outcomes[0])


class Shards(Case):
    def test_nothing_changes_a_bit_where_nothing_fails(self):
        got = self.train(3, "fully_shard", *({"stock": stock, **options} for options in
                                             ({}, {"accumulation": 2}, {"evaluation": True})
                                             for stock in (True, False)))
        for stock, redone in zip(got[::2], got[1::2]):
            self.assert_same(stock, redone)

    def test_a_failure_on_one_rank_changes_no_bit(self):
        cases = [(*place, step) for place in PLACES for step in (0, 1)]  # at first nobody knows what is left to do
        for size, failed in ((2, 0), (3, 2)):
            undisturbed, *got = self.train(size, "fully_shard", {"stock": True},
                                           *({"fault": {failed: at(*case)}} for case in cases))
            for case, one in zip(cases, got):
                with self.subTest(size=size, case=case):
                    self.assert_same(one, undisturbed)
                    self.assertEqual([rank[2] for rank in one],
                                     [(int(rank == failed), 1, None) for rank in range(size)])

    def test_one_rank_is_redone_and_splits(self):
        cases = [(*place, step) for place in PLACES for step in (0, 1)]
        for accumulation in (1, 2):
            undisturbed, *got = self.train(1, "fully_shard", {"stock": True, "accumulation": accumulation},
                                           *({"fault": {0: at(*case)}, "accumulation": accumulation}
                                             for case in cases))
            for case, one in zip(cases, got):
                with self.subTest(accumulation=accumulation, case=case):
                    self.assert_same(one, undisturbed)
                    self.assertEqual(one[0][2], (1, 1, None))
        expected, split = self.train(1, "fully_shard", {"split": True, "before": two_rows_from_step_1(0)},
                                     {"split": True, "fault": {0: at("backward", 1, times=100, most=2)}})
        self.assert_same(split, expected)

    def test_an_optimizer_that_is_named_is_enough(self):
        undisturbed, got = self.train(2, "fully_shard", {"stock": True}, {
            "fault": {1: at("backward", 1)}, "named": lambda model, optimizer: optimizer})
        self.assert_same(got, undisturbed)
        self.assertEqual([rank[2][:2] for rank in got], [(0, 1), (1, 1)])

    def test_a_call_that_trains_a_tensor_beside_them_is_not_redone(self):
        (failed,) = forked_ranks.run(1, Training("fully_shard", fault={0: at("backward", 1)}, named=lambda model, _: [
            model, torch.nn.Parameter(torch.zeros(1))]))
        self.assertIsInstance(failed.error, torch.OutOfMemoryError, getattr(failed.error, "lines", ""))
        self.assertIn("fully_shard beside parameters that it does not shard", failed.error.lines)

    def test_two_ranks_that_fail_at_once(self):
        undisturbed, *got = self.train(3, "fully_shard", {"stock": True, "accumulation": 2}, *(
            {"accumulation": 2, "fault": {0: at("forward", 1, step), 2: at("backward", 1, step)}} for step in (0, 1)))
        for one in got:
            self.assert_same(one, undisturbed)

    def test_all_ranks_split_alike(self):
        expected, *got = self.train(
            3, "fully_shard", {"split": True, "before": two_rows_from_step_1(0, 1, 2)},
            *({"split": True, "fault": {1: at(where, 1, times=100, most=2)}} for where in ("forward", "backward")))
        for one in got:
            self.assert_same(one, expected)
            self.assertEqual([rank[2][2] for rank in one], [2, 2, 2])

    def test_rows_that_one_rank_has_set_are_those_of_all(self):
        expected, got = self.train(2, "fully_shard", *({"split": True, "before": two_rows_from_step_1(*ranks)}
                                                       for ranks in ((0, 1), (1,))))
        self.assert_same(got, expected)

    def test_a_function_of_two_models(self):
        undisturbed, got = self.train(2, "fully_shard", {"stock": True, "two_models": True},
                                      {"two_models": True, "fault": {1: at("backward", 1, 2)}})
        self.assert_same(got, undisturbed)

    def test_all_stop_where_one_has_no_room(self):
        outcomes = self.stopped(3, "fully_shard", 2, fault={2: at("backward", 1, times=100)})
        self.assert_no_step(outcomes[2], outcomes[0])


if __name__ == "__main__":
    unittest.main()
