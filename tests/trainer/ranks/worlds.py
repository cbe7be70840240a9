"""Worlds of 1 to 8 ranks: at each size all stages of ZeRO have the same bits, and sizes are a band apart.

    worlds.py BUILD CORPUS [--all]     a world of 8 at two stages on CPUs; with --all each size and stage, and on cards

Each rank has one row and so one micro-batch, with which all stages add up in one order. A band between sizes is of the
same rows: 24 in all.
"""
import sys
import unittest

import ranks
from ranks import Case

ALL = "--all" in sys.argv
sys.argv = [word for word in sys.argv if word != "--all"]
SETTINGS = {"model.dropout": 0.1, "train.clip": 0.5, "train.steps": 4, "model.layers": 2, "evaluation.windows": 8,
            "run.ranks_timeout": 120}
SIZES, STAGES = ((2, 3, 4, 8), range(4)) if ALL else ((8,), (0, 3))
BAND = 1e-5  # of a loss, relative


class Worlds(Case):
    def assert_same(self, done):
        for other in done[1:]:
            self.assertEqual(other.steps(), done[0].steps())
            self.assertEqual(other.results["weights"], done[0].results["weights"])
            self.assertEqual(other.results["evaluation_loss"], done[0].results["evaluation_loss"])

    def test_stages_have_the_same_bits_at_each_size(self):
        for size in SIZES:
            with self.subTest(size=size):
                self.assert_same([self.train(size, **SETTINGS, **{"train.batch": size, "run.zero": zero})
                                  for zero in STAGES])

    @unittest.skipUnless(ALL, "of tools/soak")
    def test_cards_have_the_bits_of_each_other_at_each_stage(self):
        for size in SIZES:
            with self.subTest(size=size):
                self.assert_same([self.on_cards(size, **SETTINGS, **{
                    "train.batch": size, "run.zero": zero, "train.precision": "bf16-mixed"}) for zero in STAGES])

    @unittest.skipUnless(ALL, "of tools/soak")
    def test_sizes_are_a_band_apart(self):
        """Without dropout, whose numbers follow from the rank."""
        settings = {**SETTINGS, "model.dropout": 0, "train.batch": 24}
        alone = self.train(1, **settings).losses()
        for size in SIZES:
            losses = self.train(size, **settings).losses()
            apart = max(abs(here - there) / there for here, there in zip(losses, alone, strict=True))
            print(f"{size} ranks: losses {apart:.1e} from those of one process", flush=True)
            self.assertLess(apart, BAND)


if __name__ == "__main__":
    ranks.DEADLINE = 600
    unittest.main()
