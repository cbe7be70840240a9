"""The runner of PyTorch's own tests, on a file of ours: what passes, fails, crashes and hangs is told apart."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import simulated

HERE = pathlib.Path(__file__).resolve().parent
TESTS = """
import os, signal, time, unittest, warnings
import torch
from torch.testing._internal.common_utils import TestCase

class TestSmall(TestCase):
    def test_a_disturbs(self):
        os.environ["left"] = "1"

    def test_b_disturbed(self):
        self.assertNotIn("left", os.environ)

    def test_by_value(self):
        self.assertGreater(torch.rand(1000, device="cuda").add(1).mean().item(), 1)

    def test_crashes(self):
        os.kill(os.getpid(), signal.SIGSEGV)

    def test_fails(self):
        self.assertEqual(torch.cuda.device_count(), 7)

    def test_hangs(self):
        time.sleep(100)

    def test_last(self):
        self.assertEqual(torch.cuda.device_count(), 2)

    def test_native_only(self):
        self.assertEqual(torch.cuda.memory._snapshot()["segments"], [])
        held = torch.empty(512, device="cuda")
        self.assertFalse(torch.cuda.memory_snapshot()[0]["is_expandable"])

    @unittest.skip("not here")
    def test_skipped(self):
        pass

    def test_warns(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.warn("heard")
        self.assertEqual(len(caught), 1)
"""


def run(*options):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "test_small.py").write_text(TESTS)
        command = [sys.executable, HERE / "pytorch_suite.py", folder, "--files", "test_small.py", "--timeout", "20",
                   *options]
        environment = {**os.environ, "SPILLWAY_BUILD_DIR": str(simulated.BUILD)}
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=250,
                              env=environment)


class Suite(unittest.TestCase):
    def test_tells_what_the_native_allocator_alone_passes(self):
        outcome = run("--values", "compute")
        lines = outcome.stdout.splitlines()
        self.assertEqual(outcome.returncode, 1, outcome.stderr)
        self.assertEqual(lines[0], "test_small.py: native: 6 passed, 1 crashed, 1 failed, 1 hangs, 1 skipped")
        self.assertEqual(lines[1], "test_small.py: spillway: 5 passed, 2 failed, 1 crashed, 1 hangs, 1 skipped")
        states = {line.split()[2].split(".")[1].rstrip(":"): line.split()[:2] for line in lines[2:6]}
        self.assertEqual(states, {"test_crashes": ["crashed"] * 2, "test_fails": ["failed"] * 2,
                                  "test_hangs": ["hangs"] * 2, "test_native_only": ["passed", "failed"]})
        self.assertIn("exit code -11", lines[2])
        self.assertEqual(lines[6], "passed natively only:")
        self.assertRegex(lines[7], r"^  TestSmall.test_native_only: NOT EXPLAINED: failed: AssertionError")
        self.assertEqual(len(lines), 8)

    def test_a_run_of_nothing_is_an_error(self):
        nothing = {"no test was run": ("--tests", "no such test"), "has no none.py": ("--files", "none.py")}
        for said, options in nothing.items():
            outcome = run("--allocator", "native", *options)
            self.assertEqual(outcome.returncode, 2, outcome.stdout)
            self.assertIn(said, outcome.stderr)

    def test_asserts_on_values_are_left_out_where_nothing_is_computed(self):
        outcome = run("--values", "zeros", "--allocator", "native", "--tests", "by_value|test_fails|test_last")
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual(outcome.stdout.splitlines()[0], "test_small.py: native: 2 passed, 1 failed")


if __name__ == "__main__":
    unittest.main()
