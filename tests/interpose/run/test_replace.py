"""`spillway run --mode replace`: Spillway is LibTorch's allocator."""
import sys
import unittest

from case import OWN, PROGRAMS, Case


class Replace(Case):
    def test_spillway_is_the_allocator_of_an_unchanged_program(self):
        program = "import torch; torch.ones(4, device='cuda'); print(torch.cuda.get_allocator_backend())"
        for options in ([], ["--quiet"]):
            ended = self.run_on(sys.executable, "-c", program, options=["--mode", "replace", *options])
            self.assertEqual((ended.status, ended.output.strip()), (0, "spillway"), ended.errors)
            self.assertEqual(ended.reports, {}, "a run without failures leaves no file")

    def test_also_where_cuda_was_used_before_torch_came(self):
        ended = self.run_on(sys.executable, "-c", """
import ctypes
count = ctypes.c_int()
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
import torch
torch.ones(4, device="cuda")
print(torch.cuda.get_allocator_backend())
""", options=["--mode", "replace"])
        self.assertEqual((ended.status, ended.output.strip()), (0, "spillway"), ended.errors)

    def test_the_programs_own_choice_of_an_allocator_stands(self):
        program = ("import torch; torch.ones(4, device='cuda'); print(torch.cuda.get_allocator_backend())")
        ended = self.run_on(sys.executable, "-c", program, options=["--mode", "replace"],
                            PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertEqual((ended.status, ended.output.strip()), (0, "cudaMallocAsync"), ended.errors)
        self.assertIn("PyTorch's own allocator stayed", ended.errors)

    def test_what_is_fragmented_natively_fits(self):
        program = [sys.executable, OWN / "fragmenting.py"]
        native = self.simulate(*program, card=("--capacity", "4GiB"))
        self.assertIn("OutOfMemoryError", native.errors)
        ended = self.run_on(*program, options=["--mode", "replace"], card=("--capacity", "4GiB"))
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertRegex(ended.line, r"met, [1-9]\d* rescued")
        self.assertTrue(any("stitch" in report for report in ended.reports.values()))

    def test_true_values_under_a_limit_are_bitwise_those_of_a_run_without(self):
        program = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "3", "512"]
        card = ("--capacity", "4GiB", "--values", "compute")
        native = self.simulate(*program, card=card)
        ended = self.run_on(*program, options=["--mode", "replace", "--limit", "96MiB"], card=card)
        self.assertEqual((native.status, ended.status), (0, 0), native.errors + ended.errors)
        self.assertEqual(ended.output, native.output)
        self.assertEqual(len(native.output.splitlines()), 4, "three losses, and the bytes at the end")
        self.assertRegex(ended.line, r"met, [1-9]\d* rescued")
        (report,) = ended.reports.values()
        self.assertIn("  when      after optimizer step 3 began", report)
        self.assertRegex(report, r" 1  after 1  .* rescued ")

    def test_what_other_libraries_hold_is_no_other_process(self):
        ended = self.run_on(sys.executable, "-c", """
import ctypes, torch
kept, pointer = torch.ones(4, device="cuda"), ctypes.c_uint64()
assert ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3 << 30)) == 0
torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
""", card=("--capacity", "4GiB"), options=["--mode", "replace"])
        self.assertIn("the CUDA context, other libraries or processes that are not seen hold 3.00 GiB", ended.errors)

    def test_a_limit_that_is_too_small_ends_as_pytorch_does(self):
        ended = self.run_on(sys.executable, "-c", "import torch; torch.empty(1 << 30, device='cuda')",
                            options=["--mode", "replace", "--limit", "1GiB"])
        self.assertEqual(ended.status, 1)
        self.assertIn("OutOfMemoryError", ended.errors)
        self.assertIn("0 rescued, 1 not", ended.line)


if __name__ == "__main__":
    unittest.main()
