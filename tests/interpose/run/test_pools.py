"""Memory that the driver's stream-ordered pools only keep."""
import re
import sys
import unittest

from case import OWN, Case


class Pools(Case):
    """The other way round: PyTorch is short of memory while another library hoards it, in the driver's pools."""
    program = [sys.executable, OWN / "hoarding_pool.py", "20"]
    on_default = [*program, "default"]

    def test_natively_pytorch_fails(self):
        ended = self.simulate(*self.on_default)
        self.assertIn("the pool keeps 20 GiB", ended.output)
        self.assertIn("OutOfMemoryError", ended.errors)

    def test_the_pools_give_back_what_they_only_keep(self):
        for mode in ("rescue", "replace"):
            for pool in ("default", "own"):
                with self.subTest(mode=mode, pool=pool):
                    ended = self.run_on(*self.program, pool, options=["--mode", mode])
                    self.assertEqual(ended.status, 0, ended.errors)
                    self.assertIn("PyTorch has 23 GiB, the pool 1", ended.output)
                    self.assertIn("1 memory failure met, 1 rescued", ended.line)
        self.assertTrue(all(re.search(r"trim_pools +1 +1 +19.00 GiB", it) for it in ended.reports.values()))

    def test_without_that_strategy_nothing_does(self):
        ended = self.run_on(*self.on_default, options=["--strategies", "framework_cache,release_cache,ask_processes"])
        self.assertIn("OutOfMemoryError", ended.errors)

    def test_nothing_is_trimmed_where_no_pool_is_used(self):
        ended = self.run_on(sys.executable, "-c",
                            "import torch; torch.empty(1 << 40, dtype=torch.uint8, device='cuda')")
        self.assertNotIn("trim_pools", next(iter(ended.reports.values())))

    def test_not_while_a_stream_is_captured(self):
        program = """
import torch
graph, captured = torch.cuda.CUDAGraph(), torch.cuda.Stream()
exec(open(PROGRAM).read().split("need =")[0])
with torch.cuda.stream(captured):
    graph.capture_begin(capture_error_mode="relaxed")
    result = runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(23 * GIB))
    graph.capture_end()
print("in a capture:", result, reserved() // GIB)
result = runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(23 * GIB))
print("after it:", result, reserved() // GIB)
""".replace("PROGRAM", repr(str(OWN / "hoarding_pool.py")))
        ended = self.run_on(sys.executable, "-c", program, "20", "default")
        self.assertIn("in a capture: 2 20\nafter it: 0 1\n", ended.output, ended.errors)


if __name__ == "__main__":
    unittest.main()
