"""spillway.checkpoint: a training goes from spillway-train to a program that is sharded by FSDP, and back."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed.checkpoint as dcp
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
sys.path.insert(0, str(ROOT / "python"))
from spillway._checkpoint.dcp_folder import Folder  # noqa: E402
from spillway._checkpoint.trainer_file import TrainerFile  # noqa: E402
from spillway.checkpoint import BadCheckpoint, from_dcp, to_dcp  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_name("checkpoint_ranks.py")
CHECKPOINT = "checkpoint.safetensors"


def train(run, steps, *options):
    done = subprocess.run([BUILD / "bin" / "spillway-train", "--config", ROOT / "configs" / "tiny.toml", "--quiet",
                           "--set", f"data.corpus={ROOT / '.deps' / 'corpus.txt'}", "--set", f"run.out={run}",
                           "--set", f"train.steps={steps}", "--set", "run.checkpoint_every=4", *options],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return (pathlib.Path(run) / "losses.txt").read_text().splitlines()


def digest(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def setUpModule():
    global RUN
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    RUN = pathlib.Path(folder.name) / "run"
    train(RUN, 4)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def dcp(self, run=None, **options):
        to_dcp(run or RUN, self.folder / "dcp", **options)
        return self.folder / "dcp"

    def run_with(self, *options):
        run = self.folder / "other"
        train(run, 4, *options)
        return run

    def assert_same(self, one, other):
        one, other = TrainerFile(one / CHECKPOINT), TrainerFile(other / CHECKPOINT)
        self.assertEqual((one.metadata, list(one)), (other.metadata, list(other)), "in the order of the file")
        for name in one:
            self.assertTrue(torch.equal(one[name], other[name]), name)


class Ranks(Case):
    def setUp(self):
        super().setUp()
        self.before, self.after = self.folder / "before", self.folder / "after"
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                               PROGRAM, self.dcp(), self.before, self.after, "2"], capture_output=True, text=True,
                              timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.loaded = json.loads(done.stdout.splitlines()[-1])

    def test_a_sharded_program_goes_on_with_a_training_and_the_trainer_with_its(self):
        self.it_has_the_numbers()
        self.what_it_saves_goes_on_as_if_nothing_had_been()
        self.its_steps_count_on()

    def it_has_the_numbers(self):
        file = TrainerFile(RUN / CHECKPOINT)
        parameters = [name.removeprefix("model.") for name in file if name.startswith("model.")]
        for kind, prefix in (("weights", "model"), ("first", "optimizer.first"), ("second", "optimizer.second")):
            expected = {name: digest(file[f"{prefix}.{name}"]) for name in parameters}
            if kind == "weights":
                expected["lm_head.weight"] = expected["transformer.wte.weight"]
            self.assertEqual(self.loaded[kind], expected)
        self.assertEqual(self.loaded["steps"], [4.0])

    def what_it_saves_goes_on_as_if_nothing_had_been(self):
        self.assertEqual(len(list(self.before.glob("*.distcp"))), 2, "a part of each rank")
        from_dcp(self.before, self.folder / "back", like=RUN)
        self.assert_same(self.folder / "back", RUN)
        resumed = train(self.folder / "resumed", 7, "--resume", self.folder / "back")
        self.assertEqual(resumed[-3:], train(self.folder / "whole", 7)[-3:])

    def its_steps_count_on(self):
        from_dcp(self.after, self.folder / "later", like=RUN)
        before, after = TrainerFile(RUN / CHECKPOINT), TrainerFile(self.folder / "later" / CHECKPOINT)
        self.assertEqual([after.number(key) for key in ("step", "updates", "cursor")], [6, 6, 6 * 8])
        for name in before:
            self.assertEqual(torch.equal(before[name], after[name]), name.startswith("random."), name)
        losses = train(self.folder / "resumed_later", 8, "--resume", self.folder / "later")
        self.assertEqual([line.split()[0] for line in losses if line[0].isdigit()], ["6", "7"])


class Alone(Case):
    def test_weights_that_are_rounded_go_as_their_masters(self):
        run = self.run_with("--set", "train.precision=bf16-mixed")
        folder = self.dcp(run)
        state = {"model.transformer.wpe.weight": torch.empty(64, 64)}
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        file = TrainerFile(run / CHECKPOINT)
        self.assertTrue(torch.equal(state["model.transformer.wpe.weight"],
                                    file["optimizer.master.transformer.wpe.weight"]))
        from_dcp(folder, self.folder / "back", like=run)
        self.assert_same(self.folder / "back", run)

    def test_t5_has_the_keys_of_hugging_face(self):
        run = self.run_with("--set", "model.family=t5")
        folder = self.dcp(run)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=384, d_model=64, d_kv=16, d_ff=256, num_layers=2, num_heads=4))
        state = {"model": model.state_dict()}
        keys = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
        self.assertEqual({key for key in keys if key.startswith("model.")},
                         {f"model.{name}" for name in state["model"]})
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        file = TrainerFile(run / CHECKPOINT)
        for name in state["model"]:
            own = "shared.weight" if name in ("lm_head.weight", "encoder.embed_tokens.weight",
                                              "decoder.embed_tokens.weight") else name
            self.assertTrue(torch.equal(state["model"][name], file[f"model.{own}"]), name)
        from_dcp(folder, self.folder / "back", like=run)
        self.assert_same(self.folder / "back", run)

    def test_momentum_is_sgds_buffer(self):
        run = self.run_with("--set", "train.optimizer=sgd", "--set", "train.momentum=0.9")
        keys = dcp.FileSystemReader(self.dcp(run)).read_metadata().state_dict_metadata
        self.assertIn("optim.state.transformer.wpe.weight.momentum_buffer", keys)
        self.assertNotIn("optim.state.transformer.wpe.weight.step", keys)

    def test_weights_alone(self):
        run = self.run_with("--set", "train.optimizer=adamw8bit")
        with self.assertRaisesRegex(BadCheckpoint, "the states of adamw8bit have no form .*: --weights-only"):
            self.dcp(run)
        folder = self.dcp(run, weights_only=True)
        self.assertFalse([key for key in dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
                          if key.startswith("optim")])
        from_dcp(folder, self.folder / "back", like=run, weights_only=True)
        self.assert_same(self.folder / "back", run)

    def test_other_keys_and_the_top(self):
        folder = self.dcp(model="", optimizer="adam")
        keys = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
        self.assertIn("transformer.wpe.weight", keys)
        self.assertIn("adam.state.transformer.wpe.weight.exp_avg", keys)
        from_dcp(folder, self.folder / "back", like=RUN, model="", optimizer="adam")
        self.assert_same(self.folder / "back", RUN)

    def test_narrower_floats_are_taken_and_wider_ones_refused(self):
        file = TrainerFile(RUN / CHECKPOINT)
        for kind, sound in ((torch.bfloat16, True), (torch.float64, False)):
            with self.subTest(kind):
                folder = self.folder / str(kind)
                dcp.save({name: file[name].to(kind) for name in file if name.startswith("model.")},
                         checkpoint_id=folder)
                back = self.folder / "back"
                if sound:
                    from_dcp(folder, back, like=RUN, weights_only=True)
                    made = TrainerFile(back / CHECKPOINT)["model.transformer.wpe.weight"]
                    self.assertTrue(torch.equal(made, file["model.transformer.wpe.weight"].to(kind).float()))
                    shutil.rmtree(back)
                else:
                    with self.assertRaisesRegex(BadCheckpoint, "is torch.float64, not torch.float32"):
                        from_dcp(folder, back, like=RUN, weights_only=True)


class Refusals(Case):
    def refused(self, pattern, folder, like=None, **options):
        back = self.folder / "back"
        with self.assertRaisesRegex(BadCheckpoint, pattern):
            from_dcp(folder, back, like=like or RUN, **options)
        self.assertEqual(list(back.glob("*")) + list(back.glob(".*")), [])

    def test_what_is_no_folder_of_it(self):
        (self.folder / "empty").mkdir()
        for folder in (self.folder / "none", self.folder / "empty", RUN):
            self.refused("no folder that torch.distributed.checkpoint has written", folder)
        with self.assertRaisesRegex(BadCheckpoint, "is there already"):
            to_dcp(RUN, self.folder / "empty")

    def test_what_a_folder_lacks_or_has_in_another_shape(self):
        folder = self.dcp()
        self.refused(r"has no 'net\.transformer\.wte\.weight', nor 27 others", folder, model="net")
        self.refused(r"has no 'optimizer\.state\..*', nor 83 others", folder, optimizer="optimizer")
        self.refused(r"wte\.weight' is \[256, 64\], not \[256, 32\]", folder,
                     like=self.run_with("--set", "model.width=32", "--set", "model.heads=2"))
        int8 = self.run_with("--set", "train.precision=int8", "--set", "model.width=64")
        self.refused("weights of 8 bits have no form", folder, like=int8)

    def test_a_part_that_was_cut_off_or_is_gone(self):
        folder = self.dcp()
        part = next(folder.glob("*.distcp"))
        part.write_bytes(part.read_bytes()[:100_000])
        self.refused("cannot be read: ", folder)
        part.unlink()
        self.refused("cannot be read: ", folder)
        (folder / ".metadata").write_bytes((folder / ".metadata").read_bytes()[:1000])
        self.refused("no folder that torch.distributed.checkpoint has written", folder)

    def changed(self, name, **tensors):
        """The whole folder with other tensors."""
        state = {key: torch.empty(one.size) for key, one in
                 dcp.FileSystemReader(self.folder / "dcp").read_metadata().state_dict_metadata.items()}
        dcp.load(state, checkpoint_id=self.folder / "dcp", no_dist=True)
        dcp.save({**state, **tensors}, checkpoint_id=self.folder / name)
        return self.folder / name

    def test_updates_that_differ(self):
        self.dcp()
        step = "optim.state.transformer.wpe.weight.step"
        self.refused("have not been updated equally often", self.changed("differ", **{step: torch.tensor(9.0)}))

    def test_weights_that_would_be_left_out(self):
        self.dcp()
        more = {"model.transformer.h.2.ln_1.weight": torch.ones(64)}
        self.refused(r"has 'model\.transformer\.h\.2\.ln_1\.weight', and the model of .* has not",
                     self.changed("larger", **more))
        self.refused(r"'model\.lm_head\.weight' and 'model\.transformer\.wte\.weight' differ, and are one",
                     self.changed("untied", **{"model.lm_head.weight": torch.ones(256, 64)}))

    def test_a_damaged_index_is_refused_or_taken_and_never_more(self):
        index = self.dcp() / ".metadata"
        whole, chance, refused = index.read_bytes(), random.Random(1), 0
        for _ in range(300):
            damaged = bytearray(whole)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            index.write_bytes(damaged)
            try:
                Folder(index.parent)
            except BadCheckpoint:
                refused += 1
        self.assertGreater(refused, 100)

    def test_files_that_are_none(self):
        whole = (RUN / CHECKPOINT).read_bytes()
        bad = self.folder / "bad.safetensors"
        for content in (b"", b"\0" * 7, b"\xff" * 64, whole[:500], whole[:-1], (2).to_bytes(8, "little") + b"[]",
                        (2).to_bytes(8, "little") + b"{}", (4).to_bytes(8, "little") + b"null"):
            bad.write_bytes(content)
            with self.assertRaises(BadCheckpoint):
                to_dcp(bad, self.folder / "dcp")
        self.assertFalse((self.folder / "dcp").exists())

    def test_metadata_that_is_no_text(self):
        bad = self.folder / "bad.safetensors"
        for metadata in ([], {"format": "spillway-train 3", "numerics": 5}, {"format": "spillway-train 3"}):
            header = json.dumps({"__metadata__": metadata}).encode()
            bad.write_bytes(len(header).to_bytes(8, "little") + header)
            with self.assertRaises(BadCheckpoint):
                to_dcp(bad, self.folder / "dcp")

    def test_a_damaged_header_is_refused_or_taken_and_never_more(self):
        whole = (RUN / CHECKPOINT).read_bytes()
        header = 8 + int.from_bytes(whole[:8], "little")
        bad, chance, refused = self.folder / "bad.safetensors", random.Random(1), 0
        for _ in range(300):
            damaged = bytearray(whole)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(header)] = chance.randrange(256)
            bad.write_bytes(damaged)
            try:
                for tensor in TrainerFile(bad).values():
                    tensor.sum()
            except BadCheckpoint:
                refused += 1
        self.assertGreater(refused, 100)

    def test_the_command_says_it_in_one_line(self):
        command = [sys.executable, "-m", "spillway.checkpoint", "to-dcp", self.folder / "none", self.folder / "dcp"]
        environment = {**os.environ, "PYTHONPATH": ROOT / "python"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^spillway\.checkpoint: .*none.*\n$")
        done = subprocess.run([*command[:4], RUN, self.folder / "dcp"], capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"dcp: 28 weights and 56 states of the optimizer, after step 4\n$")


if __name__ == "__main__":
    unittest.main()
