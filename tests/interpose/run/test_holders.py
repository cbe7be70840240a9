"""A report says which lines of the program held the memory and which one asked, under `spillway run`: both where
Spillway is PyTorch's allocator, and who asked where it is PyTorch's own."""
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import unittest

from torch.cuda import _memory_viz as viewer

from case import OWN, SPILLWAY, Case, reports


class Holders(Case):
    def incident(self, way, *options, **settings):
        """The one that was not rescued, as data and as text."""
        ended = self.run_on(sys.executable, OWN / "holders.py", way, options=["--quiet", *options],
                            card=("--capacity", "768MiB"), **settings)
        self.assertIn("OutOfMemoryError", ended.errors)
        (name, text), = ended.reports.items()
        self.trace = pathlib.Path(self.folder) / name
        found = reports.data_of(SPILLWAY, self.trace)
        lost = [one for one in found["incidents"] if one["outcome"] == "gave up"]
        return lost[-1], text

    def replaced(self, way, **settings):
        return self.incident(way, "--mode", "replace", "--host-budget", "0", **settings)

    def test_every_byte_has_its_line(self):
        lost, text = self.replaced("forward", SPILLWAY_STACKS="all")
        self.assertEqual(sum(one["bytes"] for one in lost["holders"]), lost["equation"]["live_bytes"])
        self.assertRegex(lost["asked_by"]["where"], r"^holders.py:\d+ grow$")
        first = lost["holders"][0]
        self.assertEqual(first["where"], lost["asked_by"]["where"])
        self.assertEqual(first["bytes"], first["blocks"] * (8 << 20))
        states = [one for one in lost["holders"] if one["where"].startswith("torch/optim/adam")]
        self.assertEqual(len(states), 2, "the two moments")
        self.assertTrue(all(one["caller"].startswith("holders.py:") for one in states))
        self.assertIn("  by        holders.py:", text)
        self.assertIn("Who held it", text)
        self.assertNotIn("estimated", text)

        self.viewed(lost)

    def viewed(self, lost):
        """PyTorch's own viewer takes the trace, and finds the same in it."""
        written = pathlib.Path(self.folder) / "trace.pickle"
        subprocess.run([SPILLWAY, "report", self.trace, "--pickle", written], check=True, capture_output=True)
        snapshot = pickle.loads(written.read_bytes())
        for segment in snapshot["segments"]:
            at = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], at)
                at += block["size"]
            self.assertEqual(at, segment["address"] + segment["total_size"])
        self.assertIn("Summary of segments", viewer.segsum(snapshot))
        self.assertTrue("raise OutOfMemoryError" in viewer.trace(snapshot))
        failures = [entry for entry in snapshot["device_traces"][0] if entry["action"] == "oom"]
        self.assertEqual([entry["size"] for entry in failures], [lost["requested_bytes"]])
        self.assertEqual(failures[0]["frames"][0]["name"], "grow")

    def test_a_sample_says_nearly_the_same(self):
        lost, text = self.replaced("forward")
        live = lost["equation"]["live_bytes"]
        self.assertAlmostEqual(sum(one["bytes"] for one in lost["holders"]) / live, 1, delta=0.15)
        self.assertRegex(lost["holders"][0]["where"], r"^holders.py:\d+ grow$")
        self.assertIn("estimated", text)

    def test_the_backward_pass_is_named_by_its_node(self):
        lost, _ = self.replaced("backward", SPILLWAY_STACKS="all")
        self.assertRegex(lost["asked_by"]["where"], r"^backward of \w+Backward0$")
        self.assertRegex(lost["holders"][0]["where"], r"^holders.py:\d+ ")

    def test_without_stacks_there_are_none(self):
        lost, text = self.replaced("forward", SPILLWAY_STACKS="none")
        self.assertEqual((lost["holders"], lost["asked_by"]), ([], None))
        self.assertNotIn("Who held it", text)

    def test_pytorchs_own_allocator_is_asked_by_a_line_too(self):
        lost, text = self.incident("forward")
        self.assertRegex(lost["asked_by"]["where"], r"^holders.py:\d+ grow$")
        self.assertEqual(lost["holders"], [])
        page = self.trace.with_suffix(".html")
        self.assertIn('"outcome":"gave up"', page.read_text(), "it is there unasked")
        self.assertIn("  by        holders.py:", text)
        # Of each segment of 20 MiB for two blocks of 8, 4 are left that no other block can have.
        self.assertEqual(lost["cause"], "fragmentation")
        self.assertEqual(lost["equation"]["residual_bytes"], 0)
        self.assertGreater(lost["equation"]["live_bytes"], 500 << 20)
        self.assertIn("spillway run --mode replace", text)


class WithoutAFailure(Case):
    """Of a process that has requested so much that its trace has lost who holds the memory."""

    def setUp(self):
        super().setUp()
        self.trace = pathlib.Path(self.folder) / "run.spill"
        words = [SPILLWAY, "simulate", "--capacity", "768MiB", "--", SPILLWAY, "run", "--mode", "replace", "--trace",
                 self.trace, "--", sys.executable, OWN / "holders.py", "waiting"]
        self.program = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env={**os.environ, "SPILLWAY_RUNS": "off"})
        self.addCleanup(self.end)
        self.process = int(self.program.stdout.readline())

    def end(self):
        self.program.communicate(timeout=60)

    def told(self):
        """Who holds it, once the process has told it."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = reports.data_of(SPILLWAY, self.trace)["at_last"]
            if found["told_ns"] is not None:
                return found
            time.sleep(0.1)
        self.fail("it told nobody")

    def test_a_process_that_runs_and_then_is_killed_has_said_who_holds_it(self):
        found = self.told()
        self.assertEqual(found["in_use_bytes"], 20 * (8 << 20))
        self.assertRegex(found["holders"][0]["where"], r"^holders.py:\d+ grow$")
        self.assertEqual(found["older_bytes"], 0)
        running = reports.run(SPILLWAY, self.trace).stdout
        row = r"\n.*\n +160.00 MiB +100% +20 "
        self.assertRegex(running, r"Who holds it now \(as the process told it [\d.]+ .*s ago\)" + row)
        os.kill(self.process, signal.SIGKILL)
        self.end()
        killed = reports.run(SPILLWAY, self.trace).stdout
        self.assertRegex(killed, r"Who held it at last \(when the process last told it, .*\)" + row)


class Pages(Case):
    def run_out(self, trace):
        program = "import torch; torch.empty(1 << 40, dtype=torch.uint8, device='cuda')"
        ended = self.run_on(sys.executable, "-c", program, options=["--trace", trace], card=("--capacity", "1GiB"))
        self.assertEqual(ended.status, 1, ended.errors)
        return ended.errors

    def test_a_page_takes_no_other_files_place(self):
        kept = pathlib.Path(self.folder) / "mine.html"
        kept.write_text("mine")
        self.assertIn("mine.html is another file, and stays", self.run_out("mine.spill"))
        self.assertEqual(kept.read_text(), "mine")

    def test_traces_without_an_ending_have_pages_of_their_own(self):
        for _ in range(2):
            self.run_out("trace.%p")
        pages = sorted(path.name for path in pathlib.Path(self.folder).glob("*.html"))
        self.assertEqual(len(pages), 2)
        self.assertTrue(all(page.startswith("trace.") for page in pages), pages)

    def test_a_page_of_an_earlier_run_is_replaced(self):
        self.run_out("again.spill")
        page = pathlib.Path(self.folder) / "again.html"
        first = page.stat().st_mtime_ns
        self.assertNotIn("stays", self.run_out("again.spill"))
        self.assertGreater(page.stat().st_mtime_ns, first)


class Setting(Case):
    def test_what_is_no_setting_is_refused(self):
        for wrong in ("1", "8GB of it", "yes"):
            ended = self.run_on(sys.executable, "-c", "import torch; torch.ones(1, device='cuda')",
                                options=["--mode", "replace"], card=("--capacity", "1GiB"), SPILLWAY_STACKS=wrong)
            self.assertIn(f"SPILLWAY_STACKS: '{wrong}' is not all, none, or a size from 4KiB to 4GiB", ended.errors)


if __name__ == "__main__":
    unittest.main()
