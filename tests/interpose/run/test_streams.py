"""Streams that other libraries make and destroy: a real driver crashes when it is asked about one that is gone.
And streams with seconds of queued work that no operator of PyTorch's tells of.
"""
import concurrent.futures
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


class LongQueue(Case):
    """A move of memory waits for what is queued for as long as it gets on."""
    # Of the ten seconds that are queued; a wait of three in which nothing gets on is tried twice.
    least_seconds = 8

    def ended(self, kind):
        return self.run_on(BUILD / "bin" / "interpose_long_queue", kind, card=("--capacity", "112MiB"), timeout=120,
                           options=["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"])

    def test_is_waited_for_whatever_it_is_made_of(self):
        kinds = ("launches", "graphs", "copies", "own")
        with concurrent.futures.ThreadPoolExecutor() as beside:
            for kind, ended in zip(kinds, beside.map(self.ended, kinds)):
                with self.subTest(kind):
                    self.assertEqual(ended.status, 0, ended.errors)
                    how, seconds = ended.output.split(" after ")
                    self.assertEqual(how, "served", ended.errors)
                    self.assertGreater(float(seconds.split()[0]), self.least_seconds, "all was queued at once")


if __name__ == "__main__":
    unittest.main()
