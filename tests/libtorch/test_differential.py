"""The same random program on PyTorch's own allocator and on Spillway's: what it can see is the same.

SPILLWAY_DIFFERENTIAL_SEED and SPILLWAY_DIFFERENTIAL_OPERATIONS choose another program, or a longer one: tools/soak
does.
"""
import difflib
import os
import pathlib
import sys
import unittest

import simulated

PROGRAM = pathlib.Path(__file__).with_name("programs") / "random_program.py"
SEED = int(os.environ.get("SPILLWAY_DIFFERENTIAL_SEED", "1"))
OPERATIONS = int(os.environ.get("SPILLWAY_DIFFERENTIAL_OPERATIONS", "1500"))
ALLOCATORS = ("native", "spillway")


class Differential(unittest.TestCase):
    def compare(self, mode, values, capacity="8GiB"):
        outcomes = {}
        for allocator in ALLOCATORS:
            outcome = simulated.run(sys.executable, PROGRAM, SEED, OPERATIONS, mode, allocator, values=values,
                                    capacity=capacity, timeout=3600)
            self.assertEqual(outcome.status, 0, f"{allocator}: {outcome.errors[-3000:]}")
            self.assertEqual(outcome.violations(), "", allocator)
            outcomes[allocator] = outcome.output
        native, ours = outcomes["native"], outcomes["spillway"]
        differences = list(difflib.unified_diff(native, ours, *ALLOCATORS, n=0, lineterm="")) if native != ours else []
        self.assertEqual(differences, [], f"seed {SEED}: " + "\n".join(differences[:20]))
        self.assertEqual(len(native), OPERATIONS + 2, "a line for each operation, the end, and the counts")
        return native

    def test_values_and_statistics(self):
        self.compare("values", "compute")

    def test_graphs(self):
        self.compare("graphs", "zeros")


if __name__ == "__main__":
    unittest.main()
