"""Deaths that public issue threads tell of: each program dies on its card, the report names the line, and with the
thread's cure the program fits on that card."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
SPILLWAY = str(BUILD / "bin" / "spillway")
sys.path.insert(0, str(ROOT / "tests"))
import reports  # noqa: E402

RECORD = ROOT / "benchmarks" / "report" / "record.py"
REPLACE = [SPILLWAY, "run", "--quiet", "--mode", "replace", "--host-budget", "0", "--trace", "run.spill", "--"]


class Report:
    """What a report says of the failure that it shows, of a trace or of PyTorch's snapshot."""

    def __init__(self, report):
        if "incidents" in report:
            shown = next(one for one in report["incidents"] if one["incident"] == report["shown_incident"])
            self.cause, self.asked_by, self.holders = shown["cause"], shown["asked_by"], shown["holders"]
            self.verdict = shown["verdict"]
            self.failures = [one for one in report["incidents"] if one["outcome"] != "granted"]
        else:
            self.cause, self.asked_by, self.holders = report["verdict"]["cause"], report["failure"], report["holders"]
            self.verdict = report["verdict"]["text"]
        self.fits = {one["what"]: one["fits"] for one in report["counterfactuals"]}

    def share(self, line):
        """Of the bytes that are held, what that line holds: itself, or by what it called."""
        held = sum(one["bytes"] for one in self.holders if is_at(one, line))
        return held / max(1, sum(one["bytes"] for one in self.holders))


def is_at(place, line):
    return any((place[key] or "").startswith(line + " ") for key in ("where", "caller"))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def take(self, name, capacity, *arguments):
        self.name, self.capacity, self.arguments = name, capacity, arguments
        (self.folder / f"{name}.py").write_text((HERE / f"{name}.py").read_text())

    def line(self, marker):
        """The place FILE:LINE of the only line that has the text."""
        lines = [number for number, line in enumerate((HERE / f"{self.name}.py").read_text().splitlines(), 1)
                 if marker in line]
        self.assertEqual(len(lines), 1, f"{marker!r} is in the lines {lines}")
        return f"{self.name}.py:{lines[0]}"

    def run_on_card(self, *before, capacity=None, arguments=None, **settings):
        words = [SPILLWAY, "simulate", "--capacity", capacity or self.capacity, "--", *before, f"{self.name}.py",
                 *(self.arguments if arguments is None else arguments)]
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=280,
                              cwd=self.folder, env={**os.environ, **settings})

    def dies(self, *before):
        ended = self.run_on_card(*before, sys.executable)
        self.assertNotEqual(ended.returncode, 0, ended.stdout)
        self.assertIn("torch.OutOfMemoryError: CUDA out of memory", ended.stderr)

    def report(self, file, *options):
        return Report(reports.data_of(SPILLWAY, *options, file, cwd=self.folder))

    def death(self, name, capacity, *arguments):
        """Natively it dies; the report is of a run with Spillway's allocator, which may move nothing away."""
        self.take(name, capacity, *arguments)
        self.dies()
        self.dies(*REPLACE)
        return self.report("run.spill")

    def fits_when_cured(self):
        settings = HERE / "cures" / f"{self.name}.env"
        if settings.exists():
            cure = dict(line.split("=", 1) for line in settings.read_text().split())
            ended = self.run_on_card(sys.executable, **cure)
        else:
            subprocess.run(["git", "apply", "-p4", HERE / "cures" / f"{self.name}.patch"], cwd=self.folder, check=True)
            ended = self.run_on_card(sys.executable)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def held_by(self, report, marker, share):
        self.assertGreater(report.share(self.line(marker)), share, report.holders)


class Quick(Case):
    """Those that CI runs: the ones that take the least time."""

    def test_a_hidden_state_that_keeps_the_graph_of_all_chunks(self):
        report = self.death("sensor_stream", "8GiB")
        self.assertEqual(report.cause, "growth")
        self.assertIn("passes of the loop at " + self.line("forecast, hidden = model("), report.verdict)
        self.held_by(report, "output, hidden = self.rnn(readings, hidden)", 0.9)
        self.fits_when_cured()

    def test_hooks_that_leave_activations_in_the_modules(self):
        report = self.death("attributions", "4GiB")
        # Three of the models were explained: too few to call it growth, but what they left is said.
        self.assertEqual(report.cause, "capacity")
        self.assertRegex(report.verdict, r"GiB of that were allocated in earlier passes of the loop at attrib")
        self.held_by(report, "module.output = output.clone().detach()", 0.3)
        self.fits_when_cured()

    def test_a_private_pool_for_each_captured_shape(self):
        report = self.death("multiscale_detector", "1GiB")
        self.assertEqual(report.cause, "pool isolation")
        self.assertRegex(report.verdict, r"; 6 pools hold .*, allocated by multiscale_detector\.py:21 forward from")
        self.fits_when_cured()

    def test_all_logits_made_float_for_the_last_of_them(self):
        report = self.death("llama_sampling", "2816MiB")
        self.assertEqual(report.cause, "capacity")
        self.assertTrue(is_at(report.asked_by, self.line("logits = outputs.logits.float()")), report.asked_by)
        self.fits_when_cured()


class Others(Case):
    """Those that only tools/soak runs."""

    def test_validation_that_makes_graphs(self):
        report = self.death("caption_training", "12GiB")
        self.held_by(report, "        output = model(pixel_values=images, labels=captions)", 0.9)
        self.fits_when_cured()

    def test_an_evaluation_that_keeps_all_logits(self):
        report = self.death("masked_evaluation", "8GiB")
        self.assertEqual(report.cause, "growth")
        self.held_by(report, "torch.cat((preds, logits), dim=0)", 0.8)
        self.fits_when_cured()

    def test_a_replay_buffer_on_the_card(self):
        report = self.death("molecule_flow", "600MiB")
        self.assertEqual(report.cause, "leak")
        self.held_by(report, "graphs[i].clone()", 0.3)
        self.fits_when_cured()

    def test_a_checkpoint_that_stays_on_the_card(self):
        self.take("resume_training", "720MiB", "--init_from", "resume")
        first = self.run_on_card(sys.executable, capacity="8GiB", arguments=["--init_from", "scratch"])
        self.assertEqual(first.returncode, 0, first.stderr)
        report = self.death("resume_training", "720MiB", "--init_from", "resume")
        self.held_by(report, "checkpoint = torch.load(", 0.4)
        self.fits_when_cured()

    def test_trying_again_where_the_error_is_still_handled(self):
        report = self.death("auto_batch", "4GiB")
        # Nothing grows: one batch is held while smaller ones are tried.
        self.assertEqual(report.cause, "capacity")
        self.assertGreaterEqual(len(report.failures), 5)
        self.held_by(report, "loss = model(input_ids=tokens", 0.8)
        self.fits_when_cured()

    def test_averaged_weights_on_the_card(self):
        report = self.death("diffusion_training", "808MiB")
        self.held_by(report, "self.register_buffer(", 0.12)
        self.fits_when_cured()

    def test_a_sum_of_errors_that_keeps_their_graphs(self):
        report = self.death("super_resolution", "2GiB")
        self.assertEqual(report.cause, "growth")
        self.held_by(report, "x = x + block(x)", 0.5)
        self.fits_when_cured()

    def test_an_optimizer_that_needs_a_copy_of_the_weights(self):
        report = self.death("full_finetune", "6912MiB")
        self.assertTrue(is_at(report.asked_by, self.line("optimizer.step()")), report.asked_by)
        self.assertRegex(report.asked_by["where"], "^torch/optim/adam.py:.*_multi_tensor_adam")
        self.fits_when_cured()

    def test_lengths_that_leave_holes(self):
        """Spillway's own allocator has no holes here, so the report is that of PyTorch's snapshot."""
        self.take("draft_training", "5GiB")
        self.dies()
        recorded = self.run_on_card(sys.executable, RECORD, "run.pickle")
        self.assertIn("CUDA out of memory", recorded.stderr)
        report = self.report("run.pickle", "--capacity", self.capacity)
        self.assertEqual(report.cause, "fragmentation")
        self.assertTrue(report.fits["PyTorch's expandable segments"], report.fits)
        self.fits_when_cured()


if __name__ == "__main__":
    unittest.main()
