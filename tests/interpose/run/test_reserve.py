"""`spillway run --reserve`."""
import pathlib
import sys
import unittest

from case import BUILD, OWN, ROOT, SPILLWAY, Case


class Reserve(Case):
    """What comes late and cannot be moved finds room."""
    program = [sys.executable, OWN / "late_library.py"]

    def test_without_it_nothing_is_left(self):
        for prefix in ([], [SPILLWAY, "run", "--"], [SPILLWAY, "run", "--limit", "10GiB", "--"]):
            ended = self.simulate(*prefix, *self.program)
            self.assertIn("CUBLAS_STATUS_ALLOC_FAILED", ended.errors)

    def test_another_library_gets_what_pytorch_could_not(self):
        for options in ([], ["--limit", "10GiB"], ["--mode", "replace", "--host-budget", "0"]):
            with self.subTest(options):
                ended = self.run_on(*self.program, options=["--reserve", "256MiB", *options])
                self.assertEqual(ended.status, 0, ended.errors)
                self.assertIn("multiplied", ended.output)

    def test_what_dies_of_it_says_so(self):
        program = "import torch; kept = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(12)]"
        for options in (["--mode", "rescue"], ["--mode", "replace", "--host-budget", "0"],
                        ["--mode", "rescue", "--limit", "14GiB"]):
            with self.subTest(options):
                ended = self.run_on(sys.executable, "-c", program, card=("--capacity", "16GiB"),
                                    options=["--reserve", "6GiB", *options])
                self.assertIn("OutOfMemoryError", ended.errors)
                report = "\n".join(ended.reports.values())
                self.assertRegex(report, r"Verdict: reserve: .* too much; 6\.00 GiB are free and left to other")
                self.assertRegex(report, r"\+ reserve +6\.00 GiB .*\(--reserve\)")
                self.assertIn("the lines above add up to the limit", report)
                for path in pathlib.Path(self.folder).glob("*.spill"):
                    path.unlink()

    def test_what_a_pool_keeps_is_no_new_memory(self):
        ended = self.run_on(sys.executable, "-c", """
import torch
for _ in range(2):
    kept = torch.empty(28 << 30, dtype=torch.uint8, device="cuda")
    del kept
    torch.cuda.synchronize()
free = torch.cuda.mem_get_info()[0]
try:
    torch.empty(36 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("refused with", free >> 30, "GiB told free")
""", options=["--reserve", "8GiB"], PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertEqual(ended.output, "refused with 3 GiB told free\n")

    def test_free_memory_is_told_without_it(self):
        ended = self.run_on(sys.executable, "-c", "import torch; print(*torch.cuda.mem_get_info())",
                            card=("--capacity", "4GiB"), options=["--limit", "1GiB", "--reserve", "256MiB"])
        self.assertEqual(ended.output.split(), [str(768 << 20), str(1 << 30)], ended.errors)


class LeftByDefault(Case):
    """Spillway's own allocator leaves something of a card whose libraries take memory by themselves."""
    program = [sys.executable, OWN / "late_handle.py"]
    paths = {"PYTHONPATH": str(ROOT / "python"), "SPILLWAY_LIBRARIES": str(BUILD / "lib")}

    def test_the_backward_threads_handle_finds_room(self):
        for gpu in ("a100-40gb", "h100-80gb"):
            with self.subTest(gpu):
                ended = self.simulate(*self.program, "install", card=("--gpu", gpu), **self.paths)
                self.assertIn("stepped (512, 512)", ended.output, ended.errors)

    def test_under_replace_too(self):
        ended = self.run_on(*self.program, options=["--mode", "replace", "--host-budget", "0"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("stepped (512, 512)", ended.output)

    def test_a_reserve_that_is_given_counts(self):
        ended = self.simulate(*self.program, "install", **self.paths, SPILLWAY_RESERVE="0")
        self.assertIn("CUBLAS_STATUS", ended.errors)


if __name__ == "__main__":
    unittest.main()
