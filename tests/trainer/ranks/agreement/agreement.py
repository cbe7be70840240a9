"""Ranks that run out of memory in a step of which the others have part: all undo it and make it anew, or end together.

    agreement.py BUILD CORPUS [--all]     fails each request of a step, of each rank, and not some of each phase
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

ALL = "--all" in sys.argv
sys.argv = [word for word in sys.argv if word != "--all"]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import ranks  # noqa: E402
from ranks import BUILD, CORPUS, free_port  # noqa: E402


# Of some 215 requests the backward has those from 150 on, when others have part of the step those from 180 on, and the
# commit those from 210 on.
SOME = ("155", "29")


class Sweep(unittest.TestCase):
    """Each rank in turn fails at a request of a step, and at all that follow until it has another plan."""

    def swept(self, zero, *cases, size=2):
        """For each case what the ranks did that failed, and what the others did."""
        requests = ("1", "1") if ALL else SOME
        done = subprocess.run([BUILD / "bin" / "spillway", "simulate", "--capacity", "1GiB", "--gpus", str(size),
                               "--values", "compute", "--", sys.executable, "-m", "torch.distributed.run",
                               f"--nproc-per-node={size}", f"--master-port={free_port()}", "--no-python",
                               BUILD / "bin" / "ranks_sweep", CORPUS, str(zero), *requests, *cases],
                              capture_output=True, text=True, timeout=None if ALL else ranks.DEADLINE,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-3000:])
        found = re.findall(r"(\w+): rank (\d), of rank (\d) (\d+) trainings, (\d+) failures, (\d+) recoveries in(.*)",
                           done.stdout)
        for case in cases:
            victims = [line for line in found if line[0] == case and line[1] == line[2]]
            self.assertEqual(len(victims), 1 if case == "all" else size, done.stdout)
            for _, _, _, trainings, failures, _, phases in victims:
                self.assertGreater(int(trainings), 2)
                self.assertEqual(trainings, failures)
                self.assertIn("backward", phases)
                self.assertIn("optimizer", phases)
        return {case: [(int(line[3]), int(line[5])) for line in found if line[0] == case and line[1] != line[2]]
                for case in cases}

    def assert_some(self, others):
        for trainings, recoveries in others:
            self.assertTrue(0 < recoveries < trainings, "in some of the trainings")

    def assert_none(self, others):
        for _, recoveries in others:
            self.assertEqual(recoveries, 0)

    def test_with_whole_states(self):
        others = self.swept(0, "once", "splits", "replay", "gives_up")
        self.assert_none(others["once"])
        self.assert_some(others["splits"])
        self.assert_some(others["replay"])
        self.assertTrue(all(trainings == recoveries for trainings, recoveries in others["gives_up"]))

    def test_with_shares_of_the_states(self):
        others = self.swept(1, "moves", "splits", "all", "attempts")
        self.assert_none(others["moves"])
        self.assert_some(others["splits"])

    def test_with_shared_gradients(self):
        others = self.swept(2, "once", "splits")
        self.assert_none(others["once"])
        self.assertTrue(all(trainings == recoveries for trainings, recoveries in others["splits"]))

    def test_with_shared_weights(self):
        """Nothing of a pass can be made again without the others; an update can."""
        others = self.swept(3, "moves", "splits")
        self.assertTrue(all(0 < recoveries <= trainings for trainings, recoveries in others["moves"]))
        self.assertTrue(all(trainings == recoveries for trainings, recoveries in others["splits"]))


if __name__ == "__main__":
    unittest.main()
