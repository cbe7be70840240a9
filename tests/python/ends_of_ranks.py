"""Ranks that die, are stopped, come late or not at all, and stores that do: all ranks end."""
import os
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import forked_ranks
import spillway
from ranks_case import Case
from spillway._ranks import control, life, watch
from training_of_ranks import Training, at


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
        ended = forked_ranks.run(3, Training("fully_shard", ranks_bound=1.0, fault={2: at("forward", 1)},
                                             restore=[Deadly(0, signal.SIGSTOP)]), stopped=0)
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


def itself(which):
    return lambda: os.kill(os.getpid(), which)


class Waits(Case):
    """What ends a rank that waits for something that does not come."""

    def setUp(self):
        self.enterContext(mock.patch.object(watch, "_GRACE", 0.2))

    def impatient(self):
        self.enterContext(mock.patch.object(watch, "_PATIENCE", 3))

    def ended(self, kind, fault, **how):
        return forked_ranks.run(3, Training(kind, ranks_bound=1.0, fault=fault), **how)

    def assert_ended(self, outcomes, cause, rank=1):
        """By the incident: in an exception, or where that cannot be in the process's end."""
        for one in outcomes:
            if one.error is None:
                self.assertEqual(one.code, 18)
            else:
                self.assertIsInstance(one.error, spillway.RanksStopped, getattr(one.error, "lines", ""))
                self.assertEqual(one.error.rank, rank)
                self.assertRegex(one.error.cause, cause)

    def test_for_a_store_that_is_silent(self):
        for kind in ("ddp", "fully_shard"):
            with self.subTest(kind):
                ended = self.ended(kind, {0: {**at("forward", 1), "action": itself(signal.SIGSTOP)}}, server=0,
                                   stopped=0)
                self.assertEqual([one.code for one in ended[1:]], [18, 18])

    def test_in_a_collective_for_a_rank_that_is_stopped(self):
        ended = self.ended("fully_shard", {1: {**at("forward", 1), "action": itself(signal.SIGSTOP)}}, stopped=1)
        self.assert_ended([ended[0], ended[2]], "does not answer")

    def test_in_a_collective_for_a_rank_that_lives(self):
        self.impatient()
        ended = self.ended("fully_shard", {1: {**at("forward", 1), "action": lambda: time.sleep(60)}})
        self.assert_ended(ended, "has not gone on in call 2 for [34] s")

    def test_for_a_rank_that_does_not_make_the_call(self):
        def late(step, function):
            if step == 1 and dist.get_rank() == 1:
                time.sleep(8)

        self.impatient()
        ended = forked_ranks.run(3, Training("ddp", ranks_bound=1.0, before=late))
        self.assert_ended(ended, "has not come to call 2 for [34] s")

    def test_a_first_call_may_be_late(self):
        def late(step, function):
            if step == 0 and dist.get_rank() == 1:
                time.sleep(2)

        undisturbed, got = self.train(2, "ddp", {"stock": True}, {"ranks_bound": 1.0, "before": late})
        self.assert_same(got, undisturbed)

    def test_between_calls_the_store_is_gone(self):
        def end(step, function):
            if step == 2:
                time.sleep(0.5)  # five rounds of the others' watches: they know whom they watch
                if dist.get_rank() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(1)

        ended = forked_ranks.run(3, Training("ddp", ranks_bound=1.0, before=end), server=0)
        one, two = (rank.error for rank in ended[1:])
        for error in (one, two):
            self.assertIsInstance(error, spillway.RanksStopped, getattr(error, "lines", ""))
        self.assertEqual((one.incident, one.rank, two.rank), (two.incident, None, 0))
        self.assertRegex(one.cause, "the store where ranks meet cannot be reached")
        self.assertRegex(two.cause, "died: its process")

    def test_for_what_a_call_has_left_on_a_card(self):
        def end(step, function):
            if step == 2:
                control._controls[-1][2].watch.until(lambda: False)
                if dist.get_rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(30)

        ended = forked_ranks.run(2, Training("ddp", ranks_bound=1.0, before=end))
        self.assertEqual([one.code for one in ended], [18, -signal.SIGKILL])

    def test_for_ranks_of_another_dimension_of_the_mesh(self):
        ended = forked_ranks.run(4, Training("replicated shards", ranks_bound=1.0, fault={3: at("backward", 1)}))
        self.assertIsInstance(ended[3].error, torch.OutOfMemoryError, getattr(ended[3].error, "lines", ""))
        self.assert_ended(ended[:3], "ran out of memory in micro_batch", rank=3)


class Processes(unittest.TestCase):
    def test_a_process_is_gone_only_where_that_is_sure(self):
        here = life.this_process()
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        process = {**here, "pid": child.pid, "started": life._started(child.pid)}
        self.assertFalse(life.is_gone(process))
        child.communicate(b"\n")
        self.assertTrue(life.is_gone(process))
        self.assertFalse(life.is_gone({**process, "machine": "another start of the machine"}))
        with mock.patch.object(life, "_machine", lambda: here["machine"]), \
                mock.patch("builtins.open", side_effect=OSError(24, "Too many open files")):
            self.assertFalse(life.is_gone(process))
