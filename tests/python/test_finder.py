"""spillway.find_executable_batch_size: what it does beyond Accelerate's, beside which test_trainers.py runs it."""
import functools
import logging
import pathlib
import sys
import unittest
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch  # noqa: E402

import spillway  # noqa: E402

logging.getLogger("spillway").setLevel(logging.CRITICAL)


class Finder(unittest.TestCase):
    def setUp(self):
        self.tried = []

    def work(self, batch_size, fits):
        self.tried.append(batch_size)
        if batch_size > fits:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return batch_size

    def test_the_failed_calls_tensors_are_gone_at_the_next(self):
        kept = []

        @spillway.find_executable_batch_size(starting_batch_size=4, halve=True)
        def work(batch_size):
            self.assertEqual([one() for one in kept], [None] * len(kept))
            activation = torch.ones(batch_size)
            kept.append(weakref.ref(activation))
            if batch_size > 1:
                try:
                    raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
                except RuntimeError:
                    raise ValueError("an operator failed")
            return batch_size

        self.assertEqual(work(), 1)
        self.assertEqual(len(kept), 3)

    def test_what_worked_is_where_the_next_call_begins(self):
        find = spillway.find_executable_batch_size(self.work, starting_batch_size=64, halve=True)
        self.assertEqual([find(20), find(20), find(7)], [16, 16, 4])
        self.assertEqual(self.tried, [64, 32, 16, 16, 16, 8, 4])

    def test_a_function_without_a_name_is_called(self):
        class Work:
            def __call__(self, batch_size, fits):
                return work(batch_size, fits)

        work = self.work
        for function, name in ((functools.partial(work), "partial"), (Work(), "Work")):
            find = spillway.find_executable_batch_size(function, starting_batch_size=64, halve=True)
            with self.assertLogs("spillway", "WARNING") as told:
                self.assertEqual(find(20), 16)
            self.assertIn(f"{name}: CUDA out of memory", told.output[0])
            with self.assertRaisesRegex(TypeError, f"passed into `{name}` as the first"):
                find(20, 3)

    def test_an_error_within_the_handling_of_a_shortage_is_none(self):
        @spillway.find_executable_batch_size(starting_batch_size=4)
        def work(batch_size):
            self.tried.append(batch_size)
            raise ValueError("shapes")

        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        except torch.OutOfMemoryError:
            with self.assertRaisesRegex(ValueError, "shapes"):
                work()
        self.assertEqual(self.tried, [4])

    def test_functions_of_one_cache_share_the_size(self):
        for _ in range(2):
            self.assertEqual(spillway.find_executable_batch_size(self.work, 64, halve=True, cache="shared")(20), 16)
        self.assertEqual(spillway.find_executable_batch_size(self.work, 64, halve=True, cache="own")(100), 64)
        self.assertEqual(self.tried, [64, 32, 16, 16, 64])

    def test_no_size_is_an_error_from_the_last_shortage(self):
        find = spillway.find_executable_batch_size(self.work, 2, halve=True)
        with self.assertRaisesRegex(RuntimeError, "No executable batch size found") as error:
            find(0)
        self.assertIsInstance(error.exception.__cause__, torch.OutOfMemoryError)
        self.assertEqual(self.tried, [2, 1])

    def test_a_size_that_is_none_is_refused(self):
        for wrong, kind in ((0, ValueError), (-3, ValueError), ("8", TypeError), (2.5, TypeError)):
            with self.subTest(wrong), self.assertRaisesRegex(kind, f"starting_batch_size is {wrong!r}"):
                spillway.find_executable_batch_size(lambda size: size, starting_batch_size=wrong)

    def test_other_errors_pass_through(self):
        @spillway.find_executable_batch_size
        def work(batch_size):
            raise ValueError("shapes")

        with self.assertRaisesRegex(ValueError, "shapes"):
            work()


if __name__ == "__main__":
    unittest.main()
