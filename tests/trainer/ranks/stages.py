"""Pipelines over ranks: stages compute what one process does, undo and resume with it, and say what they cannot do.

    stages.py BUILD CORPUS
"""
import json
import re
import signal
import unittest

import ranks
from ranks import Case

SETTINGS = {"model.layers": 4, "plan.micro_batch": 2, "plan.evaluation_batch": 3, "train.batch": 8, "train.clip": 0.5,
            "model.tied_head": "false"}
FAMILIES = ({}, {"model.family": "llama"})


def tensors_of(path):
    """What a file of safetensors has but for random states, which are each rank's, and checksums, which are of them too
    and of the settings."""
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:end])
    return {name: (entry["dtype"], entry["shape"], whole[end + entry["data_offsets"][0]:end + entry["data_offsets"][1]])
            for name, entry in header.items()
            if name not in ("__metadata__", "checksums") and not name.startswith("random.")}


class Stages(Case):
    def assert_same(self, one, other, norms=1e-12):
        """Squares of gradients are added up stage by stage, in doubles: a norm's last bits are the order's."""
        self.assertEqual(one.losses(), other.losses())
        self.assert_near_norms(one.steps(), other.steps(), norms)
        self.assertEqual(one.results["weights"], other.results["weights"])
        self.assertEqual(one.results["evaluation_loss"], other.results["evaluation_loss"])

    def results_of(self, done, rank):
        return json.loads((done.folder / (f"results.rank-{rank}.json" if rank else "results.json")).read_text())

    def assert_near_norms(self, one, other, most=1e-12):
        for (_, here), (_, there) in zip(one, other, strict=True):
            self.assertAlmostEqual(float.fromhex(here), float.fromhex(there), delta=most)


class Bits(Stages):
    def test_are_those_of_one_process(self):
        """Of four micro-batches, of which up to four are under way."""
        for family in FAMILIES:
            alone = self.train(1, **SETTINGS, **family)
            for stages in 2, 4:
                with self.subTest(stages=stages, **family):
                    self.assert_same(self.train(stages, **SETTINGS, **family, **{"run.stages": stages}), alone)

    def test_are_those_of_replicas(self):
        """Two and three of each stage, with other numbers of rows, and with ZeRO-1; without clipping, because replicas
        share what belongs to no layer otherwise, and add up the squares of other runs."""
        settings = {**SETTINGS, "train.precision": "bf16-mixed", "train.batch": 9, "plan.recompute": "1",
                    "train.clip": 100}
        for replicas in 2, 3:
            whole = self.train(replicas, **settings)
            for zero in 0, 1:
                with self.subTest(replicas=replicas, zero=zero):
                    self.assert_same(self.train(2 * replicas, **settings,
                                                **{"run.stages": 2, "run.zero": zero, "run.stage_layers": "[3, 1]"}),
                                     whole, norms=1e-6)

    def test_of_tied_embeddings_are_those_of_one_process_where_there_is_one_micro_batch(self):
        for family in FAMILIES:
            settings = {**SETTINGS, **family, "model.tied_head": "true", "plan.micro_batch": 8}
            with self.subTest(**family):
                self.assert_same(self.train(2, **settings, **{"run.stages": 2}), self.train(1, **settings))

    def test_of_tied_embeddings_are_equal_on_all_replicas(self):
        """Sums of several micro-batches are made at each end first: near those of one process."""
        settings = {**SETTINGS, "model.tied_head": "true", "train.batch": 9}
        alone = self.train(1, **settings)
        of_zero = [self.train(6, **settings, **{"run.stages": 2, "run.zero": zero}) for zero in (0, 1)]
        self.assert_near(of_zero[0], alone)
        self.assert_same(*of_zero)

    def test_on_cards_are_those_of_processors(self):
        settings = {**SETTINGS, "model.tied_head": "true", "run.stages": 2}
        self.assert_same(self.on_cards(4, **settings, watchdog="awaited"), self.train(4, **settings))


class Recovery(Stages):
    def test_a_stage_that_runs_out_of_memory_changes_its_plan_alone(self):
        """The second one has two micro-batches under way, and an input of each."""
        settings = {**SETTINGS, "train.batch": 32, "plan.micro_batch": 8, "recovery.floor": "bit_exact",
                    "run.stages": 3, "model.layers": 6, "model.dropout": 0.1}
        undisturbed = self.on_cards(3, **settings)
        for rank in range(3):
            with self.subTest(rank=rank):
                results = self.results_of(undisturbed, rank)
                peak = results["devices"][0]["peak_live"]
                limits = ["1GiB"] * 3
                limits[rank] = f"{int(0.8 * peak) // 1024}KiB"
                tight = self.on_cards(3, limits=limits, **settings)
                for one in range(3):
                    unwound = self.results_of(tight, one)["devices"][0]["unwound"]
                    self.assertEqual(unwound > 0, one == rank, (one, unwound))
                self.assert_same(tight, undisturbed)

    def test_a_plan_of_the_schedule_has_no_room_on_one_stage(self):
        settings = {**SETTINGS, "run.stages": 2, "train.batch": 32, "plan.micro_batch": 1, "evaluation.windows": 2,
                    "recovery.floor": "bit_exact", "plan.schedule": "[{step=3, micro_batch=32}]"}
        peak = self.results_of(self.on_cards(2, **settings), 1)["devices"][0]["peak_live"]
        ended = self.on_cards(2, limits=("1GiB", f"{int(0.4 * peak) // 1024}KiB"), fails=True, **settings)
        for rank in 0, 1:
            results = self.results_of(ended, rank)
            self.assertEqual(results["exit_code"], 17, results)
            self.assertIn("in step 3 and no plan is left on rank 1: ", results["verdict"])
        self.assertTrue((ended.folder / "out" / "checkpoint.safetensors").exists())

    def test_a_smaller_evaluation_is_all_stages(self):
        settings = {**SETTINGS, "run.stages": 2, "plan.evaluation_batch": 64, "evaluation.windows": 128,
                    "plan.micro_batch": 1, "train.batch": 2, "train.steps": 2, "model.vocabulary": 1024}
        whole = self.on_cards(2, **settings)
        peak = self.results_of(whole, 1)["devices"][0]["peak_live"]
        tight = self.on_cards(2, limits=("1GiB", f"{int(0.7 * peak) // 1024}KiB"), **settings)
        for rank in 0, 1:
            recoveries = self.results_of(tight, rank)["recoveries"]
            self.assertIn(("evaluation", "split_evaluation"), {(it["phase"], it["action"]) for it in recoveries})
        self.assertEqual(tight.losses(), whole.losses())
        self.assertAlmostEqual(tight.results["evaluation_loss"], whole.results["evaluation_loss"], places=5)

    def test_a_smaller_micro_batch_is_all_stages(self):
        settings = {**SETTINGS, "train.batch": 32, "plan.micro_batch": 16, "plan.recompute": "all", "run.stages": 2}
        peak = self.results_of(self.on_cards(2, **settings), 0)["devices"][0]["peak_live"]
        tight = self.on_cards(2, limits=(f"{int(0.7 * peak) // 1024}KiB", "1GiB"), **settings)
        for rank in 0, 1:
            recoveries = self.results_of(tight, rank)["recoveries"]
            self.assertIn("split_micro_batch", {it["action"] for it in recoveries})
        size = int(re.match(r"micro_batch=(\d+) ", tight.results["plan"])[1])
        self.assertLess(size, 16)
        self.assertEqual(tight.results["weights"],
                         self.on_cards(2, **{**settings, "plan.micro_batch": size}).results["weights"])

class Estimates(Stages):
    def test_of_each_stage(self):
        settings = {"model.layers": 8, "model.width": 256, "model.heads": 4, "model.context": 256, "train.batch": 8,
                    "plan.micro_batch": 1, "train.steps": 2, "evaluation.windows": 1, "plan.evaluation_batch": 1}
        for size, more in ((4, {"run.stages": 4, "model.tied_head": "false"}),
                           (2, {"run.stages": 2, "plan.recompute": "all", "plan.head_chunks": 4}),
                           (4, {"run.stages": 2, "run.zero": 1, "train.precision": "bf16-mixed"}),
                           (2, {"run.stages": 2, "model.family": "llama", "model.dropout": 0.1,
                                "model.vocabulary": 8192})):
            done = self.on_cards(size, values="zeros", **settings, **more)
            for rank in range(size):
                log = (done.folder / "out" / (f"rank-{rank}" if rank else ".") / "train.log").read_text()
                estimated = float(re.search(r"device 0 +peak +([\d.]+) MiB", log)[1]) * 2**20
                measured = self.results_of(done, rank)["devices"][0]["peak_live"]
                with self.subTest(rank=rank, **more):
                    self.assertLess(abs(estimated / measured - 1), 0.01, (estimated, measured))


class Checkpoints(Stages):
    def saved(self, size, steps, resumed=None, **settings):
        return super().saved(size, steps, resumed, **{**SETTINGS, **settings})

    def test_are_those_of_one_process_and_go_on_at_another_mesh(self):
        meshes = ({}, {"run.stages": 2}, {"run.stages": 4}, {"run.stages": 2, "run.stage_layers": "[1, 3]"})
        sizes = (1, 2, 4, 2)
        first = [self.saved(size, 2, **mesh) for size, mesh in zip(sizes, meshes)]
        for name in "out/checkpoint.safetensors", "weights/model.safetensors":
            alone, *staged = (tensors_of(done.folder / name) for done in first)
            self.assertGreater(len(alone), 50)
            for tensors in staged:
                self.assertEqual(tensors, alone)
        whole = self.saved(1, 4)
        for start, size, mesh in ((0, 2, meshes[1]), (1, 4, meshes[2]), (2, 1, {})):
            with self.subTest(**mesh):
                last = self.saved(size, 4, resumed=first[start].folder, **mesh)
                self.assertEqual(last.losses(), whole.losses()[2:])
                self.assert_near_norms(last.steps(), whole.steps()[2:])
                self.assertEqual(last.results["weights"], whole.results["weights"])

    def test_with_shares_of_replicas(self):
        settings = {"run.stages": 2, "run.zero": 1, "model.tied_head": "true"}
        first = self.saved(4, 2, **settings)
        whole = self.saved(4, 4, **settings)
        last = self.saved(4, 4, resumed=first.folder, **settings)
        self.assertEqual(last.steps(), whole.steps()[2:])
        self.assertEqual(last.results["weights"], whole.results["weights"])


class Deaths(Stages):
    def test_a_stage_that_is_killed_ends_all(self):
        folder = self.fresh_folder()
        begun = self.start(4, folder, **{**SETTINGS, "train.steps": 100000, "run.stages": 4, "run.ranks_bound": 8,
                                         "run.ranks_beat": 0.2})
        losses = folder / "out" / "losses.txt"
        while not losses.is_file() or losses.stat().st_size == 0:
            self.assertTrue(all(one.poll() is None for one in begun))
        begun[2].kill()
        done = self.ended(begun, folder)
        self.assertEqual(done.codes, [18, 18, -signal.SIGKILL, 18], done.errors)
        for rank in 0, 1, 3:
            self.assertRegex(done.errors[rank], r"rank 2 died: its process \d+ on this machine is gone")


class Refusals(Stages):
    def refused(self, size, message, **settings):
        folder = self.fresh_folder()
        done = self.ended(self.start(size, folder, **{**SETTINGS, "run.stages": 2, **settings}), folder)
        for error in done.errors:
            self.assertRegex(error, message)
        self.assertEqual(set(done.codes), {2}, done.errors)

    def test_name_the_setting(self):
        for size, message, settings in (
                (3, r"run\.stages is 2, and 3 rank\(s\) cannot be as many of each stage", {}),
                (2, r"'run\.stages' is 5, more than the model's 4 layers", {"run.stages": 5}),
                (2, r"'run\.stage_layers' has 5 layers in 2 stages, and the model has 4",
                 {"run.stage_layers": "[3, 2]"}),
                (2, r"'run\.stage_layers' must be how many layers each stage has", {"run.stage_layers": "[0, 4]"}),
                (2, r"'run\.stages' above 1 .* stage 2 of ZeRO adds up each one's gradients at once", {"run.zero": 2}),
                (2, r"a t5 has two", {"model.family": "t5"}),
                (2, r"'run\.stages' above 1 is not for int8", {"train.precision": "int8"}),
                (2, r"'plan\.parameters' is not for 'run\.stages'", {"plan.parameters": "host"}),
                (2, r"'plan\.offload' is not for 'run\.stages'", {"plan.offload": "all"})):
            with self.subTest(message=message):
                self.refused(size, message, **settings)

    def test_embeddings_that_differ_are_named(self):
        folders = [self.fresh_folder() / "weights" for _ in range(2)]
        for seed, weights in enumerate(folders):
            self.train(1, **{**SETTINGS, "model.tied_head": "true", "train.seed": seed, "train.steps": 1,
                             "run.save": weights})
        self.config = self.folder / "of_weights.toml"
        self.config.write_text("# The weights say which model it is.\n")
        folder = self.fresh_folder()
        of_rank = {rank: {"model.pretrained": folders[rank]} for rank in (0, 1)}
        settings = {name: value for name, value in SETTINGS.items() if not name.startswith("model.")}
        done = self.ended(self.start(2, folder, of_rank=of_rank, **settings, **{"run.stages": 2}), folder)
        self.assertEqual(done.codes, [1, 1], done.errors)
        for error in done.errors:
            self.assertIn("rank 0 and rank 1 do not go together: the embeddings, which are the head's weights too, "
                          "differ", error)


if __name__ == "__main__":
    ranks.side_by_side.main(2)
