"""spillway.step on several ranks under DDP and fully_shard: a failure on one of them changes no bit, or stops all."""
import gc
import importlib
import logging
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import forked_ranks  # noqa: E402
import spillway  # noqa: E402
from training_of_ranks import Training, at  # noqa: E402

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


class Case(unittest.TestCase):
    def train(self, size, kind, *trainings):
        """Several trainings, one after the other by the same ranks; of each what its ranks have come to."""
        def train_all(rank, ranks):
            return [Training(kind, **options)(rank, ranks) for options in trainings]

        outcomes = forked_ranks.run(size, train_all)
        for one in outcomes:
            self.assertIsNone(one.error, getattr(one.error, "lines", ""))
        return [list(of_ranks) for of_ranks in zip(*(one.value for one in outcomes))]

    def assert_same(self, ones, others):
        """Weights and buffers, losses and gradients."""
        self.assertEqual([one[:2] for one in ones], [other[:2] for other in others])

    def stopped(self, size, kind, failed, bound=1.0, **options):
        """All ranks end; the exceptions, of which those of others than `failed` are RanksStopped of one incident."""
        outcomes = forked_ranks.run(size, Training(kind, ranks_bound=bound, **options))
        others = [one for rank, one in enumerate(outcomes) if rank != failed]
        for one in others:
            self.assertIsInstance(one.error, spillway.RanksStopped, getattr(one.error, "lines", one.code))
            self.assertEqual(one.error.rank, failed)
        self.assertEqual(len({one.error.incident for one in others}), 1)
        return outcomes


PLACES = [(where, layer) for where in ("forward", "backward") for layer in (0, 2)]


def two_rows_from_step_1(*ranks):
    def before(step, function):
        if step == 1 and dist.get_rank() in ranks:
            function.recovery.rows = 2

    return before


class Replicas(Case):
    def test_nothing_changes_a_bit_where_nothing_fails(self):
        variants = [{}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.0001}]
        got = self.train(3, "ddp", *({"ddp": ddp, "stock": stock} for ddp in variants for stock in (True, False)))
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

    def test_a_rank_splits_alone(self):
        split, expected = self.train(3, "ddp", {"split": True, "fault": {1: at("backward", 1, times=100, most=2)}},
                                     {"split": True, "before": two_rows_from_step_1(1)})
        self.assert_same(split, expected)
        self.assertEqual([one[2][2] for one in split], [None, 2, None])

    def test_all_stop_where_one_has_no_room(self):
        outcomes = self.stopped(3, "ddp", 1, fault={1: at("backward", 1, times=100)})
        self.assert_no_step(outcomes[1], outcomes[0])

    def assert_no_step(self, failed, other):
        self.assertIsInstance(failed.error, torch.OutOfMemoryError)
        self.assertIn(f"incident {other.error.incident}: no rank has made this step", failed.error.lines)
        self.assertRegex(other.error.cause, "ran out of memory: CUDA out of memory")


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

    def test_two_ranks_that_fail_at_once(self):
        undisturbed, *got = self.train(3, "fully_shard", {"stock": True, "accumulation": 2}, *(
            {"accumulation": 2, "fault": {0: at("forward", 1, step), 2: at("backward", 1, step)}} for step in (0, 1)))
        for one in got:
            self.assert_same(one, undisturbed)

    def test_all_ranks_split_alike(self):
        expected, *got = self.train(3, "fully_shard", {"split": True, "before": two_rows_from_step_1(0, 1, 2)}, *(
            {"split": True, "fault": {1: at(where, 1, times=100, most=2)}} for where in ("forward", "backward")))
        for one in got:
            self.assert_same(one, expected)
            self.assertEqual([rank[2][2] for rank in one], [2, 2, 2])

    def test_all_stop_where_one_has_no_room(self):
        outcomes = self.stopped(3, "fully_shard", 2, fault={2: at("backward", 1, times=100)})
        Replicas.assert_no_step(self, outcomes[2], outcomes[0])


class Deadly:
    """An object in `restore`: its rank gets the signal while all agree to redo."""

    def __init__(self, rank, which):
        self.rank, self.which = rank, which

    def state_dict(self):
        return {}

    def load_state_dict(self, _):
        if dist.get_rank() == self.rank:
            os.kill(os.getpid(), self.which)


class Deaths(Case):
    def test_a_rank_is_killed_while_others_wait_for_it(self):
        for kind in ("ddp", "fully_shard"):
            with self.subTest(kind):
                fault = {1: {**at("backward", 1), "action": lambda: os.kill(os.getpid(), signal.SIGKILL)}}
                outcomes = self.stopped(3, kind, 1, fault=fault)
                self.assertEqual(outcomes[1].code, -signal.SIGKILL)
                self.assertRegex(outcomes[0].error.cause, r"died: its process \d+ is gone")

    def test_a_rank_is_killed_while_all_agree(self):
        outcomes = self.stopped(3, "fully_shard", 0, fault={2: at("forward", 1)},
                                restore=[Deadly(0, signal.SIGKILL)])
        self.assertRegex(outcomes[1].error.cause, r"died: its process \d+ is gone")

    def test_a_rank_that_is_stopped_while_all_agree(self):
        outcomes = []

        def wake(pids):
            outcomes.append(pids[0])

        self.enterContext(Waking(outcomes))
        ended = forked_ranks.run(3, Training("fully_shard", ranks_bound=1.0, fault={2: at("forward", 1)},
                                             restore=[Deadly(0, signal.SIGSTOP)]), started=wake)
        for one in ended[1:]:
            self.assertIsInstance(one.error, spillway.RanksStopped, getattr(one.error, "lines", one.code))
            self.assertRegex(one.error.cause, "does not answer for [12] s")
        self.assertIsInstance(ended[0].error, spillway.RanksStopped, getattr(ended[0].error, "lines", ended[0].code))

    def test_an_error_on_one_rank_ends_all(self):
        def wrong():
            raise KeyError("a bug")

        for kind in ("ddp", "fully_shard"):
            with self.subTest(kind):
                outcomes = self.stopped(2, kind, 1, fault={1: {**at("forward", 1), "action": wrong}})
                self.assertIsInstance(outcomes[1].error, KeyError)
                self.assertRegex(outcomes[0].error.cause, "ended by KeyError")

    def test_what_cannot_be_repeated_ends_all(self):
        outcomes = self.stopped(2, "ddp", 1, ddp={"static_graph": True}, fault={1: at("backward", 1)})
        self.assertIsInstance(outcomes[1].error, torch.OutOfMemoryError)
        self.assertIn(f"incident {outcomes[0].error.incident} ends this call on all ranks", outcomes[1].error.lines)
        self.assertRegex(outcomes[0].error.cause, "ran out of memory in micro_batch")

    def test_a_rank_that_ends_before_the_others(self):
        def leave(step, function):
            if step == 2 and dist.get_rank() == 1:
                raise SystemExit("no more batches")

        outcomes = self.stopped(2, "ddp", 1, before=leave)
        self.assertRegex(outcomes[0].error.cause, "ended its program after 2 calls, and others are in call 3")


class Waking:
    """A stopped rank goes on when the others have had time to end: with them it would otherwise never."""

    def __init__(self, pids):
        self.pids = pids

    def __enter__(self):
        import threading

        self.timer = threading.Timer(6.0, lambda: os.kill(self.pids[0], signal.SIGCONT))
        self.timer.start()

    def __exit__(self, *_):
        self.timer.cancel()


if __name__ == "__main__":
    unittest.main()
