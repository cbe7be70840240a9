"""`spillway run --limit`: natively and through the allocator."""
import json
import pathlib
import re
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


class FrameworkLimit(Case):
    """A limit of PyTorch's own allocator: a request that it refuses for that asks no driver."""
    capacity = 256
    head = """
import sys, torch
MIB = 1 << 20
def fraction(share, device=0): torch.cuda.set_per_process_memory_fraction(float(share), device)
def empty(size, device=0): return torch.empty(size * MIB, dtype=torch.uint8, device=f"cuda:{device}")
def refused(size, device=0):
    try:
        empty(size, device)
    except torch.OutOfMemoryError:
        print("refused", size)
"""

    def died(self, program, *arguments, options=(), machine=()):
        return self.run_on(sys.executable, "-c", self.head + program, *arguments, options=options,
                           card=("--capacity", f"{self.capacity}MiB", *machine))

    def report(self, ended):
        self.assertEqual(len(ended.reports), 1, ended.errors)
        return next(iter(ended.reports.values()))

    def test_is_a_failure_with_a_report(self):
        ended = self.died("fraction(0.25); empty(100)")
        self.assertEqual(ended.status, 1)
        self.assertEqual(ended.number(r"(\d+) memory failure met, 0 rescued, 1 not"), 1, ended.line)
        report = self.report(ended)
        self.assertIn("asked by PyTorch's allocator (libc10_cuda.so)", report)
        self.assertRegex(report, r"Verdict: limit: 36\.00 MiB too much; the limit is 64\.00 MiB on a device of 256\.00")
        self.assertIn("the lines above add up to the limit", report)

    def test_pytorch_says_what_it_says_without_spillway(self):
        program = self.head + "fraction(0.25); empty(100)"
        words = [line for line in self.simulate(sys.executable, "-c", program, card=("--capacity", "256MiB"))
                 .errors.splitlines() if "OutOfMemoryError" in line]
        self.assertEqual(len(words), 1)
        self.assertIn(words[0], self.died("fraction(0.25); empty(100)").errors)

    def test_the_fraction_that_it_names_is_enough_and_less_is_not(self):
        """A small request takes a whole segment of 20 MiB."""
        program = "fraction(sys.argv[1]); kept = [empty(25), empty(25)]; empty(9)"
        report = self.report(self.died(program, "0.25"))
        self.assertRegex(report, r"rounded +20\.00 MiB")
        share = float(re.search(r"of the card are free: (0\.\d\d) would have let this request in", report).group(1))
        enough = self.died(program, f"{share:.2f}")
        self.assertEqual(enough.status, 0, enough.errors)
        self.assertIn("no memory failure of a driver call", enough.line)
        self.assertEqual(self.died(program, f"{share - 0.01:.2f}").status, 1)

    def test_is_a_part_of_spillways_limit_where_there_is_one(self):
        ended = self.died("fraction(0.5); empty(100)", options=["--limit", "128MiB"])
        self.assertRegex(self.report(ended), r"the limit is 64\.00 MiB on a device of 128\.00 MiB; .* 128\.00 MiB of "
                                             r"the card are free: 0\.79 would have let this request in")

    def test_no_fraction_helps_where_the_card_has_no_more(self):
        ended = self.died("fraction(0.25); empty(300)")
        self.assertRegex(self.report(ended), r"Verdict: capacity: 236\.00 MiB too much; .* no fraction would have let")

    def test_what_pytorch_serves_from_its_cache_is_no_failure(self):
        ended = self.died("fraction(0.25); kept = empty(40); del kept; print(empty(60).numel() // MIB)")
        self.assertEqual(ended.output, "60\n", ended.errors)
        self.assertIn("no memory failure of a driver call", ended.line)

    def test_each_refusal_is_told_once_on_any_thread_and_device(self):
        ended = self.died("""
import threading
fraction(0.5, 1)
refused(200, 1)
worker = threading.Thread(target=refused, args=(201, 1))
worker.start(); worker.join()
print(empty(100, 1).numel() // MIB, empty(200, 0).numel() // MIB)
""", machine=("--gpus", "2"))
        self.assertEqual(ended.output.split("\n")[:3], ["refused 200", "refused 201", "100 200"], ended.errors)
        self.assertEqual(ended.number(r"(\d+) memory failures met, 0 rescued, 2 not"), 2, ended.line)
        self.assertIn("where     device 1,", self.report(ended))

    def test_what_the_driver_refuses_below_it_is_told_once(self):
        ended = self.died("""
import ctypes
fraction(0.9)
kept = empty(2)
pointer = ctypes.c_uint64()
print(ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(150 * MIB)))
refused(120)
""")
        self.assertEqual(ended.output.split("\n")[:2], ["0", "refused 120"], ended.errors)
        self.assertEqual(ended.number(r"(\d+) memory failure met, 0 rescued, 1 not"), 1, ended.line)
        self.assertNotIn("Verdict: limit", self.report(ended))

    def test_what_the_driver_refuses_after_it_is_told_once(self):
        """Below the limit only when PyTorch has given its cache back, so that it asks the driver a single time."""
        ended = self.died("""
import ctypes
fraction(0.9)
kept = empty(2)
pointer = ctypes.c_uint64()
print(ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(120 * MIB)))
idle = empty(110)
del idle
refused(125)
""")
        self.assertEqual(ended.output.split("\n")[:2], ["0", "refused 125"], ended.errors)
        self.assertEqual(ended.number(r"(\d+) memory failure met, 0 rescued, 1 not"), 1, ended.line)
        self.assertNotIn("Verdict: limit", self.report(ended))

    def test_in_replace_it_is_told_once_too(self):
        ended = self.died("fraction(0.25); refused(100)", options=["--mode", "replace", "--strategies", "none"])
        self.assertEqual(ended.number(r"(\d+) memory failure met, 0 rescued, 1 not"), 1, ended.line)
        self.assertIn("Verdict: limit: 36.00 MiB too much", self.report(ended))

    def test_pytorchs_profiler_is_told_as_ever(self):
        program = self.head + """
fraction(0.25)
with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    refused(100)
print([event.name() for event in profile.profiler.kineto_results.events() if "OutOfMemory" in event.name()])
"""
        words, card = (sys.executable, "-c", program), ("--capacity", "256MiB")
        native = self.simulate(*words, card=card)
        self.assertIn("OutOfMemory", native.output, native.errors)
        self.assertEqual(self.run_on(*words, card=card).output, native.output)


if __name__ == "__main__":
    unittest.main()
