"""Trainings on several ranks, and what their ranks come to."""
import unittest

import torch

import forked_ranks
import spillway
from training_of_ranks import Training


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

    def stopped(self, size, kind, failed, bound=3.0, **options):
        """All ranks end; the exceptions, of which those of others than `failed` are RanksStopped of one incident."""
        outcomes = forked_ranks.run(size, Training(kind, ranks_bound=bound, **options))
        others = [one for rank, one in enumerate(outcomes) if rank != failed]
        for one in others:
            self.assertIsInstance(one.error, spillway.RanksStopped, getattr(one.error, "lines", one.code))
            self.assertEqual(one.error.rank, failed, one.error.cause)
        self.assertEqual(len({one.error.incident for one in others}), 1)
        return outcomes

    def assert_no_step(self, failed, other):
        self.assertIsInstance(failed.error, torch.OutOfMemoryError)
        self.assertIn(f"incident {other.error.incident}: no rank has made this step", failed.error.lines)
        self.assertRegex(other.error.cause, "ran out of memory: CUDA out of memory")
