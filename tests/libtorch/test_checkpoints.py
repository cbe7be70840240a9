"""Checkpoints of graphs' pools, and CUDA graph trees, with Spillway as PyTorch's allocator: as with the native one."""
import pathlib
import sys
import unittest

import simulated

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def run(part, allocator):
    with_spillway = [simulated.PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
    return simulated.run(sys.executable, *with_spillway, PROGRAMS / "checkpoint_program.py", part, values="zeros")


class Checkpoints(unittest.TestCase):
    def compare(self, part):
        native, ours = run(part, "native"), run(part, "spillway")
        self.assertEqual(native.status, 0, native.errors)
        self.assertEqual(ours.status, 0, ours.errors)
        self.assertEqual(ours.output, native.output)
        self.assertEqual(ours.violations(), "")
        return ours.output

    def test_a_pool_goes_back_to_what_it_was(self):
        self.assertIn("back True", self.compare("round_trip"))

    def test_live_allocations_are_told_apart(self):
        self.assertEqual(self.compare("live_check"), ["check True False False False", "check False True"])

    def test_unknown_pools_are_refused(self):
        self.assertEqual(self.compare("refusals"), ["refused", "refused"])

    def test_pages_come_back_with_the_last_user(self):
        self.assertEqual(self.compare("released"), ["shared True", "gone 0"])

    def test_graph_trees_of_a_compiled_program(self):
        self.assertIn("trees 3", self.compare("trees"))


if __name__ == "__main__":
    unittest.main()
