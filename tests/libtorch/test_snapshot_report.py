"""`spillway report` of PyTorch's memory snapshots: its figures are those that PyTorch counted when the request failed,
though the snapshot was written later, and its verdict is what the program did."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import simulated

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
CAPACITY = 1 << 30


def die(way, allocator, **settings):
    """What PyTorch counted, and the report."""
    with_spillway = [simulated.PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
    with tempfile.TemporaryDirectory() as folder:
        snapshot = pathlib.Path(folder) / "snapshot.pickle"
        outcome = simulated.run(sys.executable, *with_spillway, PROGRAMS / "deaths_program.py", way, snapshot,
                                values="zeros", capacity=str(CAPACITY), **settings)
        if outcome.status != 0:
            raise AssertionError(outcome.errors)
        report = subprocess.run([simulated.BUILD / "bin" / "spillway", "report", "--json", "--capacity", str(CAPACITY),
                                 snapshot], capture_output=True, text=True, timeout=60)
    if report.returncode != 0:
        raise AssertionError(report.stderr)
    return json.loads(outcome.output[-1]), json.loads(report.stdout)


class Deaths(unittest.TestCase):
    def report_of(self, way, allocator="native", **settings):
        truth, report = die(way, allocator, **settings)
        memory = report["memory"]
        self.assertEqual(report["incomplete"], "")
        self.assertEqual(report["history"]["contradictions"], 0)
        self.assertLessEqual(report["failure"]["asked_bytes"], truth["asked_bytes"])  # that is the segment's
        for name in ("in_use_bytes", "reserved_bytes", "free_bytes"):
            self.assertEqual(memory[name], truth[name], name)
        self.assertEqual(memory["in_use_bytes"] + memory["rounding_bytes"], truth["rounded_bytes"])
        self.assertEqual(memory["pending_bytes"], truth["active_bytes"] - truth["rounded_bytes"])
        self.assertEqual(sum(memory[f"{part}_bytes"] for part in
                             ("in_use", "rounding", "pending", "idle", "elsewhere")), truth["reserved_bytes"])
        return report

    def cause_of(self, way):
        return self.report_of(way)["verdict"]["cause"]

    def test_what_each_step_keeps_is_a_leak_of_the_line_that_made_it(self):
        report = self.report_of("leak")
        self.assertEqual(report["verdict"]["cause"], "leak")
        holder = report["holders"][0]
        self.assertRegex(holder["where"], r"^deaths_program.py:\d+ train$")
        self.assertEqual(holder["growth"]["bytes_per_step"], 1024 * 512 * 4)
        self.assertGreater(holder["bytes"], report["memory"]["in_use_bytes"] * 0.8)

    def test_one_batch_that_is_too_large_is_no_leak(self):
        report = self.report_of("one_large_batch")
        self.assertEqual(report["verdict"]["cause"], "capacity")
        self.assertEqual([one for one in report["holders"] if one["growth"]], [])
        self.assertRegex(report["failure"]["where"], r"^deaths_program.py:\d+ train$")

    def test_free_pieces_that_are_too_small_are_fragmentation(self):
        report = self.report_of("fragmentation")
        self.assertEqual(report["verdict"]["cause"], "fragmentation")
        self.assertEqual(report["memory"]["largest_idle_bytes"], 45 << 20)
        self.assertEqual(report["memory"]["idle_bytes"], 8 * 45 << 20)

    def test_what_another_pool_holds_is_isolation(self):
        report = self.report_of("pools")
        self.assertEqual(report["verdict"]["cause"], "pool isolation")
        self.assertEqual(report["memory"]["elsewhere_bytes"], 600 << 20)

    def test_a_limit_of_the_program_is_named(self):
        self.assertEqual(self.cause_of("limit"), "limit")

    def test_what_lies_outside_pytorch_is_named(self):
        report = self.report_of("outside")
        self.assertEqual(report["verdict"]["cause"], "outside bytes")
        self.assertGreaterEqual(report["memory"]["outside_bytes"], 700 << 20)

    def test_a_cache_that_is_copied_as_it_grows_has_its_line(self):
        report = self.report_of("growing_cache")
        self.assertRegex(report["holders"][0]["where"], r"^deaths_program.py:\d+ growing_cache$")

    def test_spillways_own_snapshots_are_told_the_same(self):
        report = self.report_of("leak", "spillway")
        self.assertEqual(report["verdict"]["cause"], "leak")

    def test_expandable_segments_that_grow_and_shrink(self):
        report = self.report_of("leak", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        self.assertEqual(report["verdict"]["cause"], "leak")

    def test_frames_of_cpp_name_the_backward_pass(self):
        report = self.report_of("leak", DEATHS_STACKS="all")
        self.assertEqual(report["verdict"]["cause"], "leak")
        self.assertRegex(report["holders"][0]["where"], r"^deaths_program.py:\d+ train$")
        self.assertRegex(" ".join(one["where"] for one in report["holders"] + report["peak"]["holders"]),
                         r"backward of \w+Backward0")


if __name__ == "__main__":
    unittest.main()
