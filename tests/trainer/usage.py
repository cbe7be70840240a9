"""What the command lines of spillway-train and spillway-serve refuse.

    usage.py BUILD
"""
import pathlib
import subprocess
import sys
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()


class Usage(unittest.TestCase):
    def refused(self, program, *words):
        ended = subprocess.run([BUILD / "bin" / program, *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        return ended.stderr

    def test_an_option_without_a_value_is_not_left_out(self):
        """A variable of the shell is unset: a training would begin anew, a server would have no limit."""
        self.assertIn("spillway-train: --resume is empty: leave it out",
                      self.refused("spillway-train", "--config", "none.toml", "--resume", ""))
        self.assertIn("spillway-serve: --limit is empty: leave it out",
                      self.refused("spillway-serve", "--model", "none", "--limit", ""))

    def test_a_share_is_a_number(self):
        self.assertIn("'nan' is no number",
                      self.refused("spillway-serve", "--model", "none", "--memory-utilization", "nan"))


if __name__ == "__main__":
    unittest.main()
