"""PyTorch's memory history and snapshots with Spillway as its allocator: the same as with the native one."""
import pathlib
import re
import sys
import unittest

import simulated

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def run(part, allocator, **settings):
    with_spillway = [simulated.PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
    return simulated.run(sys.executable, *with_spillway, PROGRAMS / "history_program.py", part, values="zeros",
                         **settings)


class History(unittest.TestCase):
    def compare(self, part, **settings):
        native, ours = run(part, "native", **settings), run(part, "spillway", **settings)
        self.assertEqual(native.status, 0, native.errors)
        self.assertEqual(ours.status, 0, ours.errors)
        self.assertEqual(ours.output, native.output)
        self.assertEqual(ours.violations(), "")
        return ours.output

    def test_a_trace_replays_to_the_blocks_and_says_what_the_native_one_says(self):
        output = self.compare("history")
        self.assertGreater(len(output), 25)
        said = "phase two" if simulated.MINOR >= 10 else "None"
        self.assertTrue(any(line.startswith("alloc 7340032") and said in line for line in output), output)

    def test_modes_levels_and_limits(self):
        self.assertGreater(len(self.compare("settings")), 10)

    def test_cpp_stacks_and_annotations(self):
        output = self.compare("stacks")
        self.assertEqual(output[0], "new True")

    def test_each_entry_names_its_region_of_torch_compile(self):
        output = self.compare("compiled", TORCHDYNAMO_DISABLE="0")
        self.assertNotIn("Torch-Compiled Region", output[0])
        regions = set(re.findall(r"Torch-Compiled Region: \d+/\d+", output[1]))
        self.assertGreaterEqual(len(regions), 3, output[1])

    def test_a_region_counts_though_the_history_begins_or_ends_inside_it(self):
        outcome = run("switched", "spillway", TORCHDYNAMO_DISABLE="0")
        self.assertEqual(outcome.status, 0, outcome.errors)
        for line in outcome.output:
            self.assertRegex(line, r"^history \[\('alloc', 1048576, 'Torch-Compiled Region: \d+/\d+'\), "
                                   r".*\('alloc', 3145728, 'N/A'\)")
        self.assertEqual(len(outcome.output), 3)


if __name__ == "__main__":
    unittest.main()
