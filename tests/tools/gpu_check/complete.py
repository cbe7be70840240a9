"""A complete gpu-check from its archive, on the simulator: ended after two minutes, then gone on with to its end."""
import collections
import json
import time
import unittest

from unpacked import REMAIN, Unpacked

MOST_SECONDS = 600  # what a borrowed machine gives a command


class Complete(Unpacked):
    making = ["--one-trainer"]

    def call(self, seconds):
        """The exit code, and the seconds that it took."""
        begin = time.monotonic()
        ended = self.run_there(self.tree / "gpu-check", "--simulated", "--seconds", seconds, "--folder", self.found,
                               status=None, timeout=seconds + 60)
        took = time.monotonic() - begin
        print(f"a call with {seconds} s: {took:.0f} s, exit code {ended.returncode}", flush=True)
        self.assertIn(ended.returncode, (0, REMAIN), f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
        self.assertLess(took, seconds + 5, "it ends before its time is over")
        return ended.returncode, took

    def check_tables(self, report, parts):
        """Each row of each part is there as often as it was made."""
        printed = collections.Counter(report.splitlines())
        rows = collections.Counter(row for part in parts for row in part["rows"] if row.startswith("| "))
        self.assertEqual({row: printed[row] for row in rows}, dict(rows))
        self.assertIn(f"{len(parts)} of {len(parts)} parts are done", report)

    def test_every_part_is_in_the_tables_once(self):
        self.found = self.folder / "found"
        code, whole = self.call(120)
        self.assertEqual(code, REMAIN)
        while code == REMAIN:
            code, took = self.call(570)
            whole += took
        self.assertLess(whole, MOST_SECONDS)
        parts = json.loads((self.found / "results.json").read_text())["parts"]
        self.assertEqual({part["part"]: part["state"] for part in parts}, {part["part"]: "pass" for part in parts})
        self.check_tables((self.found / "results.md").read_text(), parts)
        seconds = collections.Counter()
        for part in parts:
            seconds[part["part"].split(": ")[0]] += part["seconds"]
        self.assertEqual(len(seconds), 11, "every group")
        print(f"{len(parts)} parts in {whole:.0f} s: " + ", ".join(f"{name} {took:.0f}" for name, took in
                                                                  seconds.items()))


if __name__ == "__main__":
    unittest.main()
