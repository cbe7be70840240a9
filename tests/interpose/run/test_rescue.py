"""`spillway run` in its default mode: other libraries are served from PyTorch's cache."""
import sys
import unittest

from case import OWN, TORCH, TORCHRUN, Case


class Rescue(Case):
    """Another library is short of memory while PyTorch hoards it."""
    of_torch = [*TORCHRUN, OWN / "nccl_beside_cache.py"]
    program = ["env", "TORCH_DIST_USE_NCCL2=0", *of_torch]
    card = ("--gpu", "a100-40gb", "--gpus", "2")

    def test_without_spillway_the_communicator_fails(self):
        ended = self.simulate(*self.program, card=self.card)
        self.assertNotEqual(ended.status, 0)
        self.assertIn("NCCL error", ended.errors)

    def test_the_frameworks_cache_serves_it(self):
        ended = self.run_on(*self.program, card=self.card)
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("reduced", ended.output)
        self.assertEqual(ended.number(r"(\d+) memory failures met, 2 rescued"), 2, ended.line)
        self.assertEqual(len(ended.reports), 2, "a report for each rank that met a failure")
        for report in ended.reports.values():
            self.assertIn("asked by libnccl.so.2", report)
            self.assertRegex(report, r"framework_cache +bit exact .* GiB")
            self.assertIn("outcome: rescued", report)
        for name in ended.reports:
            self.assertIn(name, ended.line)

    @unittest.skipIf(TORCH < (2, 15), "this PyTorch's backend takes no lock")
    def test_a_backend_that_locks_the_cache_is_told_and_costs_no_time(self):
        """Were the cache emptied, PyTorch would wait for the call of NCCL, which waits for the memory."""
        ended = self.run_on(*self.of_torch, card=self.card)
        self.assertNotEqual(ended.status, 0)
        self.assertEqual(ended.number(r"met, (\d+) rescued"), 0, ended.line)
        self.assertEqual(len(ended.reports), 2)
        for report in ended.reports.values():
            self.assertIn("TORCH_DIST_USE_NCCL2=0 chooses a backend that does not", report)
            self.assertNotRegex(report, r"framework_cache +bit exact")
            self.assertRegex(report, r"outcome: not rescued, 0 B gained in [\d.]+ (µs|ms)\n")

    def test_the_first_use_of_other_libraries_is_served_too(self):
        for library, refusal in (("cublas", "CUBLAS_STATUS_ALLOC_FAILED"), ("cufft", "CUFFT_ALLOC_FAILED"),
                                 ("cusolver", "CUSOLVER_STATUS_ALLOC_FAILED"), ("cudnn", "ALLOCATION_FAILED"),
                                 ("nccl", "NCCL, called by the program itself, failed")):
            with self.subTest(library):
                program = [sys.executable, OWN / "library_beside_cache.py", library]
                self.assertIn(refusal, self.simulate(*program).errors)
                ended = self.run_on(*program)
                self.assertEqual(ended.output, "used\n", ended.errors)
                self.assertEqual(ended.number(r"met, (\d+) rescued"), 1, ended.line)

    def test_without_that_strategy_nothing_does(self):
        ended = self.run_on(*self.program, card=self.card, options=["--strategies", "release_cache"])
        self.assertNotEqual(ended.status, 0)
        self.assertEqual(ended.number(r"met, (\d+) rescued"), 0, ended.line)

    def test_observe_only_counts(self):
        ended = self.run_on(*self.program, card=self.card, options=["--mode", "observe"])
        self.assertNotEqual(ended.status, 0)
        self.assertIn("2 memory failures met, only observed", ended.line)
        self.assertEqual(ended.reports, {})

    def test_pytorchs_own_failure_is_left_to_it(self):
        """Its allocator holds its lock and empties its own cache: no strategy may enter it."""
        ended = self.run_on(sys.executable, "-c", """
import torch
kept = [torch.empty(8 << 30, dtype=torch.uint8, device="cuda") for _ in range(4)]
del kept[1:]
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("refused", torch.cuda.memory_reserved() >> 30)
print(torch.empty(24 << 30, dtype=torch.uint8, device="cuda").numel() >> 30)
""")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertEqual(ended.output.split(), ["refused", "8", "24"])
        self.assertIn("1 memory failure met, 0 rescued, 1 not", ended.line, "what PyTorch deals with is none")
        for report in ended.reports.values():
            self.assertIn("asked by PyTorch's allocator (libc10_cuda.so)", report)
            self.assertRegex(report, r"Verdict: capacity: .* 8.00 GiB live and 1.00 TiB asked")
            self.assertRegex(report, r"= live +8.00 GiB .* in use in PyTorch's allocator")
            self.assertIn("the lines above add up to the limit", report)
            self.assertNotIn("framework_cache", report)


    def test_a_core_that_does_not_start_is_no_silence(self):
        """A program may make its settings itself, where `run` does not see them."""
        program = ("import os; os.environ['SPILLWAY_STRATEGIES'] = 'magic'\n"
                   "import torch; torch.empty(1 << 40, dtype=torch.uint8, device='cuda')")
        ended = self.run_on(sys.executable, "-c", program)
        self.assertEqual(ended.status, 1)
        self.assertIn("nothing is rescued: SPILLWAY_STRATEGIES: there is no strategy 'magic'", ended.errors)
        self.assertRegex(ended.line, r"[1-9] memory failures? met, 0 rescued")


if __name__ == "__main__":
    unittest.main()
