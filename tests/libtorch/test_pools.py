"""Memory pools with Spillway as PyTorch's allocator: as with the native one."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import simulated

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


class Pools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.source, cls.throws = (pathlib.Path(cls.folder.name) / name for name in ("libsource.so", "libthrows.so"))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", cls.source, PROGRAMS / "pool_source.c", "-ldl"], check=True)
        subprocess.run(["c++", "-shared", "-fPIC", "-o", cls.throws, PROGRAMS / "throwing_source.cpp", "-ldl"],
                       check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_part(self, part, allocator, source=None):
        with_spillway = [simulated.PROGRAMS / "with_spillway.py"] if allocator == "spillway" else []
        program = PROGRAMS / "pools_program.py"
        return simulated.run(sys.executable, *with_spillway, program, part, source or self.source,
                             values="zeros")

    def compare(self, part, lines=None, source=None):
        """`lines`: how many of them must be the native allocator's."""
        native, ours = (self.run_part(part, allocator, source) for allocator in ("native", "spillway"))
        self.assertEqual(native.status, 0, native.errors)
        self.assertEqual(ours.status, 0, ours.errors)
        self.assertEqual(ours.output[:lines], native.output[:lines])
        self.assertEqual(ours.violations(), "")
        return ours.output

    def test_memory_of_another_allocator(self):
        output = self.compare("own_allocator")
        self.assertEqual((output[0].split("]")[0], output[-1]), ("asked [2, 20, 30", "freed 3 4194304"))

    def test_segments_of_another_allocator_may_be_neighbours(self):
        self.assertEqual(self.compare("side_by_side"), ["segments [(30, 1), (30, 1)] True"])

    def test_a_tensor_outlives_its_pool(self):
        self.assertEqual(self.compare("outlived"), ["kept 0", "freed 1"])

    def test_free_blocks_serve_others_when_asked_to(self):
        self.assertEqual(self.compare("on_out_of_memory"), ["False failed", "True served"])

    @unittest.skipIf(simulated.MINOR < 10, "pools came to have the choice with 2.10")
    def test_blocks_that_share_no_segment(self):
        self.assertEqual(self.compare("no_split"), ["segments [1, 1] {False} True"])

    def test_a_pool_that_goes_empties_its_own_cache_alone(self):
        self.assertEqual(self.compare("empty_one"), ["120", "60", "20"])

    @unittest.skipIf(simulated.MINOR < 11, "PyTorch's own allocator crashes")
    def test_memory_of_another_allocator_counts_against_the_fraction(self):
        # PyTorch 2.11 does not give back what its default pool caches before such a pool's request fails.
        output = self.compare("within_a_fraction", lines=3)
        self.assertEqual(output, ["full None 80", "lent True None", "outside True None True", "cached True 80"])

    def test_segments_of_a_pool_that_is_gone_make_room_one_by_one(self):
        output = self.compare("outlived_within_a_fraction")
        self.assertEqual(output, ["outlived None", "two True None", "all True 78"])

    def test_what_another_allocator_throws_reaches_who_asked(self):
        output = self.compare("throwing", source=self.throws)
        self.assertEqual(output[:2], ["RuntimeError the library has lost its way 0"] * 2)
        self.assertEqual(output[3], "left 0")
        output = self.compare("throwing_when_given_back", source=self.throws)
        self.assertEqual(output, ["the library does not want it back"])

    def test_memory_of_another_allocator_does_not_expand(self):
        self.assertEqual(self.compare("kinds"), ["{False}"])

    def test_users_are_counted(self):
        self.assertEqual(self.compare("uses"), ["uses 1", "uses 2", "uses 1", "uses 2", "uses 1"])

    def test_one_of_nested_pools_serves(self):
        self.compare("inside_each_other")


if __name__ == "__main__":
    unittest.main()
