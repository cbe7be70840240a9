"""ZeRO over ranks: what they share changes no bit, wherever it lies, and can be written, read and counted.

    zero.py BUILD CORPUS
"""
import json
import re
import sys
import unittest

from ranks import Case

SETTINGS = {"model.dropout": 0.1, "plan.micro_batch": 2, "train.batch": 9, "train.clip": 0.5}
ON_HOST = {"plan.optimizer": "host", "plan.parameters": "host", "plan.gradients": "host"}


class Stages(Case):
    def assert_same(self, one, other):
        self.assertEqual(one.steps(), other.steps())
        self.assertEqual(one.results["weights"], other.results["weights"])
        self.assertEqual(one.results["evaluation_loss"], other.results["evaluation_loss"])

    def test_have_the_same_bits_on_cards(self):
        """With dropout, clipping, accumulation, and a float16 that overflows in its first steps."""
        settings = {**SETTINGS, "train.precision": "fp16-mixed", "train.loss_scale": 2.0**22}
        whole = self.on_cards(2, **settings)
        self.assertGreater(whole.results["skipped_steps"], 0)
        self.assertLess(whole.results["skipped_steps"], 6)
        self.assert_same(self.on_cards(2, **settings, **{"run.zero": 1}), whole)

    def test_shared_gradients_and_weights_have_the_same_bits_on_cards(self):
        """Of 9 rows one micro-batch a rank, wherever things lie; then five, of which the second rank has four."""
        settings = {**SETTINGS, "train.precision": "bf16-mixed", "plan.recompute": "1", "plan.micro_batch": 5,
                    "train.steps": 4}
        whole = self.on_cards(2, **settings)
        by_host = {**ON_HOST, "plan.update": "just_in_time", "plan.update_on": "host"}  # but for shared states
        for zero, more in ((2, {"plan.gradients": "host", "plan.parameters": "host"}), (0, by_host),
                           (3, {"plan.parameters": "nvme", "run.nvme_least": "0B"}), (3, by_host)):
            with self.subTest(zero=zero, **more):
                self.assert_same(self.on_cards(2, **settings, **{"run.zero": zero}, **more), whole)
        pieces = {**settings, "plan.micro_batch": 1}
        self.assert_same(*(self.on_cards(2, **{**pieces, "run.zero": zero}) for zero in (2, 3)))

    def test_a_rank_that_runs_out_of_memory_changes_its_plan_alone(self):
        settings = {"train.batch": 32, "recovery.floor": "bit_exact", "run.zero": 1}
        undisturbed = self.on_cards(2, **settings)
        tight = self.on_cards(2, limits=("1GiB", "8500KiB"), **settings)
        second = json.loads((tight.folder / "results.rank-1.json").read_text())
        self.assertGreater(sum(device["unwound"] for device in second["devices"]), 0, second)
        self.assert_same(tight, undisturbed)

    def test_an_evaluation_that_gathers_weights_begins_anew_on_all_ranks(self):
        settings = {"run.zero": 3, "plan.evaluation_batch": 64, "evaluation.windows": 128, "plan.micro_batch": 1,
                    "train.batch": 2, "train.steps": 2}
        whole = self.on_cards(2, **settings)
        limit = int(0.8 * whole.results["devices"][0]["peak_live"])
        tight = self.on_cards(2, limits=("1GiB", f"{limit // 1024}KiB"), **settings)
        for results in "results.json", "results.rank-1.json":
            recoveries = json.loads((tight.folder / results).read_text())["recoveries"]
            self.assertEqual([(it["phase"], it["action"]) for it in recoveries], [("evaluation", "split_evaluation")])
        self.assertEqual(tight.steps(), whole.steps())
        self.assertAlmostEqual(tight.results["evaluation_loss"], whole.results["evaluation_loss"], places=5)


class Checkpoints(Case):
    def saved(self, size, steps, resumed=None, **settings):
        return super().saved(size, steps, resumed, **{**SETTINGS, **settings})

    def test_go_on_at_another_stage_and_size(self):
        """Three ranks at each stage, a checkpoint, three again or two at others: the bits of each size.

        Of as many rows as ranks each rank has one micro-batch, so that all stages add up in one order."""
        first = [self.saved(3, 2, **{"train.batch": 3, "run.zero": zero}) for zero in range(4)]
        for name in "out/checkpoint.safetensors", "weights/model.safetensors":
            for done in first[1:]:
                self.assertEqual((done.folder / name).read_bytes(), (first[0].folder / name).read_bytes())
        for size, stages in (3, {3: 0, 0: 3}), (2, {1: 2, 2: 3, 3: 1}):
            again = [self.saved(size, 4, first[of].folder, **{"train.batch": size, "run.zero": zero})
                     for of, zero in stages.items()]
            for done in again:
                self.assertEqual(done.steps(), again[0].steps())
                self.assertEqual(done.results["weights"], again[0].results["weights"])
                self.assertEqual(len(done.steps()), 2)

    def test_of_matrices_in_tiles_go_on_where_ranks_have_layers_together(self):
        first = self.saved(2, 2, **{"plan.tiles": 2, "run.zero": 1, **ON_HOST})
        tiled = self.saved(2, 4, first.folder, **{"plan.tiles": 2, "run.zero": 1, **ON_HOST})
        for zero in 2, 3:
            whole = self.saved(2, 4, first.folder, **{"run.zero": zero})
            self.assert_near(whole, tiled, most=1e-3)
            self.assertNotIn("tiles", str(whole.results["plan"]))
        self.assertIn("tiles", str(tiled.results["plan"]))


class Memory(Case):
    def peaks(self, size, zero, **settings):
        done = self.on_cards(size, values="zeros", watchdog="awaited", **{
            "model.layers": 4, "model.width": 256, "model.heads": 4, "train.steps": 2, "train.batch": size,
            "evaluation.windows": size, "plan.recompute": "all", "train.precision": "bf16-mixed", "run.zero": zero,
            **settings})
        estimated = re.findall(r"device 0 +(\S.*?) +([\d.]+) MiB", done.output)
        return done.results["devices"][0]["peak_live"] / 2**20, {name: float(size) for name, size in estimated}

    def test_a_rank_has_its_share_of_the_states(self):
        """6 + 12/N bytes a parameter, 2 + 16/N, 18/N: gradients have 32 bits; the items of the estimate beside them.

        What belongs to no layer stays whole until the micro-batch ends."""
        all_numbers = outer = None
        for size, zero in ((1, 0), (2, 1), (4, 1), (4, 2), (2, 3), (4, 3)):
            measured, items = self.peaks(size, zero)
            self.assertLess(abs(items["peak"] / measured - 1), 0.02, (size, zero, items))
            if size == 1:
                all_numbers, outer = items["parameters"] / 2, (256 + 64 + 2) * 256 / 2**20
            in_layers = all_numbers - outer
            expected = {"optimizer state": 12 * all_numbers / (size if zero else 1),
                        "gradients": 4 * (all_numbers / size + outer if zero > 1 else all_numbers),
                        "parameters": 2 * (in_layers / size + outer if zero > 2 else all_numbers)}
            for name, bytes_of in expected.items():
                self.assertLess(abs(items[name] / bytes_of - 1), 0.02, (size, zero, name, items))


    def test_a_plan_is_chosen_for_a_ranks_share(self):
        """The states leave the card where all of them have no room, and stay where a share has it."""
        settings = {"model.layers": 4, "model.width": 256, "model.heads": 4, "train.steps": 1, "train.batch": 2,
                    "evaluation.windows": 2, "plan.automatic": "true", "recovery.floor": "bit_exact"}
        chosen = {zero: self.on_cards(2, values="zeros", limits=("64MiB", "64MiB"), **settings, **{"run.zero": zero})
                  for zero in (0, 1)}
        self.assertIn("optimizer=host", chosen[0].output)
        self.assertNotIn("optimizer=host", chosen[1].output)


    def test_plans_that_are_chosen_have_one_sequence(self):
        """The second card has less room, and its rank computes layers again: so does the first one, at stage 3."""
        settings = {"model.layers": 4, "model.width": 256, "model.heads": 4, "train.steps": 1, "train.batch": 32,
                    "evaluation.windows": 2, "plan.automatic": "true", "recovery.floor": "bit_exact", "run.zero": 3}
        chosen = self.on_cards(2, values="zeros", limits=("1GiB", "80MiB"), **settings)
        second = json.loads((chosen.folder / "results.rank-1.json").read_text())
        self.assertIn("recompute", second["plan"]["text"] if isinstance(second["plan"], dict) else second["plan"])
        self.assertEqual(second["plan"], chosen.results["plan"])


class Errors(Case):
    def test_states_that_can_not_be_cut(self):
        done = self.ended(self.start(2, folder := self.fresh_folder(), **{
            "run.zero": 1, "train.optimizer": "adafactor"}), folder)
        self.assertEqual(done.codes, [2, 2])
        self.assertIn("adafactor's means of rows and columns belong to whole matrices", done.errors[0])

    def test_what_has_no_shares(self):
        for zero, settings, message in (
                (3, {"train.precision": "int8"}, "'run.zero' = 3 has no shares of matrices in 8 bits"),
                (2, {"plan.tiles": 4, **ON_HOST}, "'plan.tiles' cuts matrices that one rank has whole"),
                (3, {"plan.schedule": "[{step=1, tiles=4}]", **ON_HOST},
                 "'plan.schedule (step 1).tiles' cuts matrices that one rank has whole")):
            done = self.ended(self.start(2, folder := self.fresh_folder(), **{"run.zero": zero, **settings}), folder)
            self.assertEqual(done.codes, [2, 2])
            self.assertIn(message, done.errors[0])

    def test_plans_of_other_sequences(self):
        """At stage 3 ranks use the same layers in one order; at stage 2 they have as many micro-batches."""
        for zero, other in (2, {"plan.micro_batch": 1}), (3, {"plan.recompute": 1}):
            done = self.ended(self.start(2, folder := self.fresh_folder(), of_rank={1: other}, **{
                "plan.micro_batch": 2, "run.zero": zero}), folder)
            self.assertEqual(done.codes, [1, 1], done.errors)
            self.assertIn("do not go together, their plans differ: 'micro_batch=2 ", done.errors[0])
        alone = self.train(2, of_rank={1: {"plan.recompute": 1}}, **{"plan.micro_batch": 2, "run.zero": 2})
        self.assertEqual(alone.steps(), self.train(2, **{"plan.micro_batch": 2, "run.zero": 2}).steps())

    def test_ranks_at_other_stages(self):
        self.assert_refused({}, {"run.zero": 1}, "'run.zero = 0' and 'run.zero = 1'")

    def test_ranks_that_begin_otherwise(self):
        """Else one waits for what the other one never exchanges."""
        self.assert_refused({"run.zero": 3}, {"plan.automatic": "true"}, "'the plan = given' and 'the plan = chosen")
        self.assert_refused({"run.zero": 2}, {"plan.micro_batch": "auto"}, "'the plan = given' and 'the plan = chosen")
        self.assert_refused({"run.zero": 1}, {"run.checkpoint_every": 2}, "'run.checkpoint_every = 0' and ")
        self.assert_refused({"run.zero": 1}, {"run.save": self.folder / "weights"}, "'run.save = none' and ")
        first = self.train(2, **{"train.steps": 2, "run.checkpoint_every": 1})
        self.assert_refused({}, {}, "'--resume = given' and '--resume = none'",
                            {0: ("--resume", str(first.folder / "out"))})

    def assert_refused(self, settings, of_the_second, message, options=None):
        done = self.ended(self.start(2, folder := self.fresh_folder(), of_rank={1: of_the_second},
                                     options_of_rank=options, **{"run.ranks_timeout": 10, **settings}), folder)
        self.assertEqual(done.codes, [1, 1], done.errors)
        self.assertIn("their settings differ: " + message, done.errors[0])


if __name__ == "__main__":
    sys.exit(unittest.main())
