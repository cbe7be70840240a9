"""The rescue suite's short form, on every kind of machine that a profile describes."""
import json
import pathlib
import sys
import tempfile
import unittest

from case import OWN, PROGRAMS, ROOT, Case

# The simulated CUDA runtime is of 13: an older driver refuses it, and has tests of its own.
PROFILES = sorted(path.stem for path in (ROOT / "simulator/profiles").glob("*.toml")
                  if not path.stem.startswith("driver-"))


class Profiles(Case):
    small = [sys.executable, PROGRAMS / "values_gpt2.py", "cuda", "4", "640"]
    replace = ["--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB"]

    def peaks(self):
        """Of each card but the first, in bytes."""
        reports = [json.loads(path.read_text()) for path in pathlib.Path(self.folder).glob("sim-*.json")]
        return [device["peak_bytes"] for report in reports for device in report["devices"][1:]]

    def test_a_model_too_large_for_the_card_trains_with_the_same_bits(self):
        def computing(capacity):
            return ("--values", "compute", "--capacity", capacity)  # as many cards as the profile has
        with_room = self.simulate(*self.small, card=computing("4GiB"))
        self.assertIn("0x1", with_room.output)
        for profile in PROFILES:
            with self.subTest(profile), tempfile.TemporaryDirectory() as self.folder:
                ended = self.run_on(*self.small, card=computing("104MiB"), options=self.replace,
                                    SPILLWAY_SIM_PROFILE=profile, SPILLWAY_SIM_REPORT=f"{self.folder}/sim-%p.json")
                self.assertEqual(ended.status, 0, ended.errors)
                self.assertEqual(ended.output, with_room.output)
                self.assertRegex("".join(ended.reports.values()), r"spill_to_host +\d+ +\d+ .*MiB")
                if profile == "pcie-peers":
                    self.assertNotIn("spill_to_peer", "".join(ended.reports.values()))
                    self.assertEqual(set(self.peaks()), {0}, "an atomic on a card over PCIe would lose updates")

    def test_another_library_is_served_from_the_frameworks_cache(self):
        for profile in PROFILES:
            with self.subTest(profile):
                ended = self.run_on(sys.executable, OWN / "library_beside_cache.py", "cufft",
                                    SPILLWAY_SIM_PROFILE=profile)
                self.assertEqual(ended.output, "used\n", ended.errors)
                self.assertEqual(ended.number(r"met, (\d+) rescued"), 1, ended.line)


if __name__ == "__main__":
    unittest.main()
