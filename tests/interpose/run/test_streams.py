"""Streams that other libraries make and destroy: a real driver crashes when it is asked about one that is gone."""
import sys
import unittest

from case import BUILD, OWN, ROOT, Case


class DestroyedStreams(Case):
    card = ("--capacity", "1GiB", "--values", "compute", "--profile", "unforgiving")
    program = (sys.executable, OWN / "destroyed_stream.py")

    def assert_served(self, ended):
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertEqual(ended.output, "served True\nserved again\n")

    def test_their_memory_serves_others(self):
        self.assert_served(self.run_on(*self.program, card=self.card, options=["--mode", "replace"]))

    def test_a_block_that_was_recorded_on_one_is_freed_after_its_end(self):
        self.assert_served(self.run_on(*self.program, "late", card=self.card, options=["--mode", "replace"]))

    def test_without_the_preloaded_library(self):
        paths = {"PYTHONPATH": str(ROOT / "python"), "SPILLWAY_LIBRARIES": str(BUILD / "lib")}
        self.assert_served(self.simulate(*self.program, "install", card=self.card, **paths))
        self.assert_served(self.run_on(*self.program, "install", card=self.card, **paths))


if __name__ == "__main__":
    unittest.main()
