"""ZeRO over ranks: what they share changes no bit, wherever it lies, and can be written, read and counted.

    zero.py BUILD CORPUS
"""
import json
import re
import sys
import unittest

from ranks import Case

SETTINGS = {"model.dropout": 0.1, "plan.micro_batch": 2, "train.batch": 9, "train.clip": 0.5}


class Stages(Case):
    def assert_same(self, one, other):
        self.assertEqual(one.steps(), other.steps())
        self.assertEqual(one.results["weights"], other.results["weights"])

    def test_have_the_same_bits_on_cards(self):
        """With dropout, clipping, accumulation, and a float16 that overflows in its first steps."""
        settings = {**SETTINGS, "train.precision": "fp16-mixed", "train.loss_scale": 2.0**22}
        whole = self.on_cards(2, **settings)
        self.assertGreater(whole.results["skipped_steps"], 0)
        self.assertLess(whole.results["skipped_steps"], 6)
        self.assert_same(self.on_cards(2, **settings, **{"run.zero": 1}), whole)

    def test_a_rank_that_runs_out_of_memory_changes_its_plan_alone(self):
        settings = {"train.batch": 32, "recovery.floor": "bit_exact", "run.zero": 1}
        undisturbed = self.on_cards(2, **settings)
        tight = self.on_cards(2, limits=("1GiB", "8500KiB"), **settings)
        second = json.loads((tight.folder / "results.rank-1.json").read_text())
        self.assertGreater(sum(device["unwound"] for device in second["devices"]), 0, second)
        self.assert_same(tight, undisturbed)


class Checkpoints(Case):
    def saved(self, size, steps, resumed=None, **settings):
        folder = self.fresh_folder()
        options = ("--resume", str(resumed / "out")) if resumed else ()
        done = self.ended(self.start(size, folder, options=options, **{
            **SETTINGS, "train.precision": "bf16-mixed", "train.steps": steps, "run.checkpoint_every": 1,
            "run.save": folder / "weights", **settings}), folder)
        self.assertEqual(done.codes, [0] * size, done.errors)
        return done

    def test_go_on_at_another_stage_and_size(self):
        """Three ranks, a checkpoint, three again at the other stage, two at both: the bits of each size."""
        first = {zero: self.saved(3, 2, **{"run.zero": zero}) for zero in (0, 1)}
        files = [(done.folder / "out" / "checkpoint.safetensors").read_bytes() for done in first.values()]
        self.assertEqual(files[0], files[1])
        weights = [(done.folder / "weights" / "model.safetensors").read_bytes() for done in first.values()]
        self.assertEqual(weights[0], weights[1])
        for size in 3, 2:
            there, back = (self.saved(size, 4, first[1 - zero].folder, **{"run.zero": zero}) for zero in (0, 1))
            self.assertEqual(there.steps(), back.steps())
            self.assertEqual(there.results["weights"], back.results["weights"])
            self.assertEqual(len(there.steps()), 2)


class Memory(Case):
    def peaks(self, size, zero, **settings):
        done = self.on_cards(size, values="zeros", **{
            "model.layers": 4, "model.width": 256, "model.heads": 4, "train.steps": 2, "train.batch": size,
            "evaluation.windows": size, "plan.recompute": "all", "train.precision": "bf16-mixed", "run.zero": zero,
            **settings})
        estimated = re.findall(r"device 0 +(\S.*?) +([\d.]+) MiB", done.output)
        return done.results["devices"][0]["peak_live"] / 2**20, {name: float(size) for name, size in estimated}

    def test_a_rank_has_its_share_of_the_states(self):
        """6 + 12/N bytes a parameter, its gradients in 32 bits, and the items of the estimate beside them."""
        for size, zero in ((1, 0), (2, 1), (4, 1)):
            measured, items = self.peaks(size, zero)
            self.assertLess(abs(items["peak"] / measured - 1), 0.02, (size, zero, items))
            numbers = items["parameters"] / 2
            share = size if zero else 1
            self.assertLess(abs(items["optimizer state"] / (12 * numbers / share) - 1), 0.02)


    def test_a_plan_is_chosen_for_a_ranks_share(self):
        """The states leave the card where all of them have no room, and stay where a share has it."""
        settings = {"model.layers": 4, "model.width": 256, "model.heads": 4, "train.steps": 1, "train.batch": 2,
                    "evaluation.windows": 2, "plan.automatic": "true", "recovery.floor": "bit_exact"}
        chosen = {zero: self.on_cards(2, values="zeros", limits=("64MiB", "64MiB"), **settings, **{"run.zero": zero})
                  for zero in (0, 1)}
        self.assertIn("optimizer=host", chosen[0].output)
        self.assertNotIn("optimizer=host", chosen[1].output)


class Errors(Case):
    def test_states_that_can_not_be_cut(self):
        done = self.ended(self.start(2, folder := self.fresh_folder(), **{
            "run.zero": 1, "train.optimizer": "adafactor"}), folder)
        self.assertEqual(done.codes, [2, 2])
        self.assertIn("adafactor's means of rows and columns belong to whole matrices", done.errors[0])

    def test_ranks_at_other_stages(self):
        done = self.ended(self.start(2, folder := self.fresh_folder(), of_rank={1: {"run.zero": 1}}), folder)
        self.assertEqual(done.codes, [1, 1])
        self.assertIn("their settings differ: 'run.zero = 0' and 'run.zero = 1'", done.errors[0])


if __name__ == "__main__":
    sys.exit(unittest.main())
