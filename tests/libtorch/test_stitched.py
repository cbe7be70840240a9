"""Values of a program whose blocks are stitched from pages of everywhere are bitwise those of a native run."""
import pathlib
import sys
import unittest

import simulated

FRAGMENTED = pathlib.Path(__file__).with_name("programs") / "fragmented.py"
PROGRAM = simulated.PROGRAMS / "values_gpt2.py"
STEPS, WIDTH = 3, 512


class Stitched(unittest.TestCase):
    def test_losses_are_bitwise_the_native_allocators(self):
        native = simulated.run(sys.executable, PROGRAM, "cuda", STEPS, WIDTH)
        ours = simulated.run(sys.executable, FRAGMENTED, PROGRAM, "cuda", STEPS, WIDTH, SPILLWAY_LIMIT="400MiB")
        self.assertEqual((native.status, ours.status), (0, 0), native.errors + ours.errors)
        self.assertEqual(len(native.output), STEPS + 1)
        self.assertEqual(ours.output[:STEPS], native.output[:STEPS])
        self.assertEqual(ours.violations(), "")
        word, times = ours.output[-1].split()
        self.assertEqual(word, "stitched")
        self.assertGreater(int(times), 20, "the blocks were hardly ever short of an extent")

    def test_without_stitching_the_same_program_does_not_fit(self):
        """So the test above can fail: nothing but stitching serves it."""
        ours = simulated.run(sys.executable, FRAGMENTED, PROGRAM, "cuda", STEPS, WIDTH, SPILLWAY_LIMIT="400MiB",
                             SPILLWAY_STRATEGIES="wait_for_events")
        self.assertNotEqual(ours.status, 0)
        self.assertIn("OutOfMemoryError", ours.errors)


if __name__ == "__main__":
    unittest.main()
