"""A training that does not begin leaves the files of the run before it in the same folder as they are.

    no_start.py BUILD
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CONFIG = """[model]
layers = 1
width = 16
heads = 2
context = 8
[train]
batch = 2
steps = 2
"""


class NoStart(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "config.toml").write_text(CONFIG)
        (self.folder / "corpus.txt").write_text("the page spills to host and back again.\n" * 100)

    def train(self, *options, limit="512MiB"):
        command = [BUILD / "bin/spillway", "simulate", "--capacity", "1GiB", "--values", "zeros", "--",
                   BUILD / "bin/spillway-train", "--config", self.folder / "config.toml", "--set", "run.out=" +
                   str(self.folder / "run"), "--set", f"data.corpus={self.folder / 'corpus.txt'}", "--limit", limit,
                   *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))

    def files(self):
        return {path.name: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}

    def test_the_trace_and_the_logs_stay(self):
        ended = self.train()
        self.assertEqual(ended.returncode, 0, ended.stderr)
        earlier = self.files()
        self.assertIn("trace.spill", earlier)
        for options, why in [(["--resume", str(self.folder / "nowhere")], "nowhere"),
                             (["--resume", str(self.folder / "config.toml")], "is a file; give the folder"),
                             (["--set", 'plan.optimizer="peer"'], "only one"),
                             (["--set", f"data.corpus={self.folder / 'none.txt'}"], "none.txt")]:
            with self.subTest(why):
                ended = self.train(*options)
                self.assertEqual(ended.returncode, 2, ended.stderr)
                self.assertIn(why, ended.stderr)
                self.assertEqual(self.files(), earlier)

    def test_a_run_without_room_at_its_start_leaves_all_but_the_trace(self):
        self.assertEqual(self.train().returncode, 0)
        earlier = self.files()
        ended = self.train(limit="4096")
        self.assertEqual(ended.returncode, 17, ended.stderr)
        now = self.files()
        self.assertEqual([name for name, text in earlier.items() if now.get(name) != text], ["trace.spill"])


if __name__ == "__main__":
    unittest.main()
