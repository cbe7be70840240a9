"""What moved memory makes of the program's steps: predicted, and measured."""
import re
import sys
import unittest

from case import OWN, Case


class Slowdown(Case):
    card = ("--capacity", "256MiB", "--profile", "timed-kernels")

    def run_slow(self, *options):
        ended = self.run_on(sys.executable, OWN / "slower_than_predicted.py", card=self.card,
                            options=["--mode", "replace", "--host-budget", "1GiB", *options])
        self.assertEqual(ended.status, 0, ended.errors)
        return ended, {name: float(ms) for name, ms in re.findall(r"^(\w+) ([\d.]+)$", ended.output, re.M)}

    def test_both_are_said_at_the_end_and_in_the_report(self):
        ended, ms = self.run_slow("--max-slowdown", "1.5")
        said = re.search(r"moved memory made the program's steps ([\d.]+) times as long \(([\d.]+) times predicted\)",
                         ended.errors)
        self.assertIsNotNone(said, ended.errors)
        measured, predicted = map(float, said.groups())
        self.assertAlmostEqual(measured, ms["moved"] / ms["before"], delta=0.2)
        self.assertGreater(measured, 2 * predicted, "most uses are of work that nobody sees")
        self.assertIn(f"{measured:.1f} times as long", next(iter(ended.reports.values())))

    def test_it_comes_back_as_soon_as_there_is_room_if_it_is_slower_than_promised(self):
        patient, slow = self.run_slow("--max-slowdown", "none")
        self.assertGreater(slow["after"], 2 * slow["before"], patient.errors)
        ended, ms = self.run_slow("--max-slowdown", "1.5")
        self.assertAlmostEqual(ms["after"], ms["before"], delta=0.1)
        self.assertEqual(len(re.findall("because of memory that was moved", ended.errors)), 1, ended.errors)


if __name__ == "__main__":
    unittest.main()
