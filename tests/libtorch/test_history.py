"""PyTorch's memory history and snapshots with Spillway as its allocator: the same as with the native one."""
import pathlib
import sys
import unittest

import simulated

HERE = pathlib.Path(__file__).resolve().parent


def run(part, allocator, **settings):
    with_spillway = [simulated.PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
    return simulated.run(sys.executable, *with_spillway, HERE / "history_program.py", part, values="zeros",
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
        self.assertTrue(any(line.startswith("alloc 7340032") and "phase two" in line for line in output), output)

    def test_modes_levels_and_limits(self):
        self.assertGreater(len(self.compare("settings")), 10)

    def test_cpp_stacks_and_annotations(self):
        output = self.compare("stacks")
        self.assertEqual(output[0], "new True")


if __name__ == "__main__":
    unittest.main()
