"""`spillway run --limit`: natively and through the allocator."""
import json
import pathlib
import sys
import unittest

from case import BUILD, OWN, PROGRAMS, TORCHRUN, Case


class Limit(Case):
    """One limit for all that a program takes, in every mode that refuses anything."""
    gpt2 = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "3", "512"]
    computing = ("--capacity", "4GiB", "--values", "compute")
    nccl = ["env", "TORCH_DIST_USE_NCCL2=0", *TORCHRUN, OWN / "nccl_beside_cache.py"]

    def native(self, what, limit="100MiB", mode="rescue", prefix=()):
        ended = self.run_on(*prefix, sys.executable, OWN / "native_calls.py", what, card=("--capacity", "4GiB"),
                            options=["--limit", limit, "--mode", mode], timeout=120, SPILLWAY_BUILD_DIR=str(BUILD))
        self.assertEqual(ended.status, 0, ended.errors)
        return json.loads(ended.output)

    def peak(self, limit, mode):
        report = pathlib.Path(self.folder) / "referee.json"
        ended = self.run_on(*self.gpt2, card=self.computing, options=["--mode", mode, "--limit", limit],
                            SPILLWAY_SIM_REPORT=str(report))
        return ended, json.loads(report.read_text())["devices"][0]["peak_bytes"]

    def test_pytorch_meets_it_as_the_cards_end(self):
        ended = self.run_on(*self.gpt2, card=self.computing, options=["--limit", "40MiB"])
        self.assertEqual(ended.status, 1)
        self.assertRegex(ended.errors, r"OutOfMemoryError.* GPU 0 has a total capacity of 40\.00 MiB")
        report = next(iter(ended.reports.values()))
        self.assertRegex(report, r"limit +40\.00 MiB")

    def test_with_enough_the_program_is_the_same_and_never_passes_it(self):
        native = self.simulate(*self.gpt2, card=self.computing)
        for mode in ("rescue", "replace"):
            with self.subTest(mode):
                ended, peak = self.peak("160MiB", mode)
                self.assertEqual((ended.status, ended.output), (0, native.output), ended.errors)
                self.assertLessEqual(peak, 160 << 20)
        self.assertGreater(peak, 100 << 20, "so that the limit was near")

    def test_a_late_communicator_is_served_within_it(self):
        """PyTorch has filled the limit, on a card with much room."""
        ended = self.run_on(*self.nccl, card=("--gpu", "a100-40gb", "--gpus", "2"), options=["--limit", "12GiB"])
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("reduced", ended.output)
        self.assertEqual(ended.number(r"(\d+) memory failures met, 2 rescued"), 2, ended.line)

    def test_so_the_test_above_can_fail(self):
        ended = self.run_on(*self.nccl, card=("--gpu", "a100-40gb", "--gpus", "2"),
                            options=["--limit", "12GiB", "--strategies", "none"])
        self.assertIn("NCCL error", ended.errors)

    def test_each_kind_of_allocation_counts_until_it_is_freed(self):
        seen = self.native("kinds")
        self.assertEqual(seen, {"cuMemAlloc": 4, "cuMemAllocPitch": 8, "cuMemAllocAsync": 2,
                                "cuMemAllocAsync_ptsz": 2, "cuMemAllocFromPoolAsync": 2, "cuMemCreate": 4,
                                "mapped": 4})

    def test_memory_of_graphs_counts_from_the_launch_until_it_is_trimmed(self):
        self.assertEqual(self.native("graphs"), {"captured": 4, "launched": 64, "again": 64, "beside": 2, "trimmed": 4,
                                                 "node": 24, "freed": 24, "left": 0})

    def test_threads_that_race_never_pass_it(self):
        seen = self.native("race")
        self.assertGreater(seen["refused"], 0)
        self.assertLessEqual(seen["peak"], 100 << 20)
        self.assertGreater(seen["peak"], 90 << 20)
        self.assertEqual(seen["left"], 0)

    def test_threads_that_map_where_others_unmap_are_counted(self):
        slow = BUILD / "lib" / "test" / "libslow_unmap.so"
        for prefix in ([], ["env", f"SPILLWAY_DRIVER={slow}"]):
            seen = self.native("handed_over", prefix=prefix)
            self.assertEqual(seen, {"account": 80, "charged": 80, "left": 0})

    def test_the_driver_tells_the_room_within_it(self):
        for mode in ("rescue", "replace"):
            self.assertEqual(self.native("room", mode=mode),
                             {"before": [100, 100, 100], "after": [60, 100, 100], "too_much": 2, "fits": 0})

    def test_what_is_allocated_in_a_context_goes_with_it(self):
        self.assertEqual(self.native("contexts"), {"left": 0})

    def test_a_forked_child_begins_with_nothing(self):
        self.assertEqual(self.native("child"), {"child": 0, "parent": 4 << 20})

    def test_spillways_allocator_and_driver_calls_share_it(self):
        ended = self.run_on(sys.executable, "-c", f"""
import ctypes, sys, torch
sys.path.insert(0, {str(OWN)!r})
from simulator_control import budget
MIB = 1 << 20
driver, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
kept = torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
def native(size):
    return driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
print(native(512 * MIB), native(256 * MIB), budget().taken_bytes[0] // MIB, budget().native_bytes[0] // MIB)
try:
    torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("refused")
print(driver.cuMemFree_v2(pointer), torch.empty(256 * MIB, dtype=torch.uint8, device="cuda").numel() // MIB)
""", card=("--capacity", "4GiB"), SPILLWAY_BUILD_DIR=str(BUILD),
                            options=["--mode", "replace", "--limit", "1GiB", "--strategies", "none"])
        self.assertEqual(ended.output.split(), ["2", "0", "856", "256", "refused", "0", "256"], ended.errors)


if __name__ == "__main__":
    unittest.main()
