"""What PyTorch's allocator interface has gained since 2.11, on both allocators, and what C++ alone can reach of it."""
import pathlib
import sys
import unittest

import simulated

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
MINOR = int(simulated.LIBTORCH.split(".")[1])
REFUSING = {"PYTORCH_CUDA_ALLOC_CONF": "throw_on_cudamalloc_oom:True"}


class Newer(unittest.TestCase):
    def outputs(self, **settings):
        """What the program prints on the native allocator and on Spillway's."""
        program = PROGRAMS / "newer_program.py"
        runs = [simulated.run(sys.executable, *words, program, values="zeros", capacity="2GiB", **settings)
                for words in ([], [simulated.PROGRAMS / "with_spillway.py"])]
        for outcome in runs:
            self.assertEqual(outcome.status, 0, outcome.errors[-3000:])
            self.assertEqual(outcome.violations(), "")
        return [outcome.output for outcome in runs]

    def test_a_program_sees_the_same(self):
        native, ours = self.outputs()
        self.assertEqual(ours, native)
        self.assertEqual("no annotations" in ours, MINOR < 14)
        self.assertEqual("no statistics of private pools" in ours, MINOR < 13)

    @unittest.skipIf(MINOR < 12, "this PyTorch has no such setting")
    def test_a_refusal_under_the_policy_is_counted(self):
        native, ours = self.outputs(**REFUSING)
        self.assertEqual(ours, native)
        self.assertEqual(ours[:2], ["refused", "num_oom_rejections 1 num_ooms 0"])


if __name__ == "__main__":
    unittest.main()
