"""tools/test-cases: what single tests end with, and what it makes of that. A ctest of ours tells of the tests."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def described(name, status, **properties):
    listed = [{"name": key, "value": value} for key, value in properties.items()]
    return {"name": name, "command": ["sh", "-c", f"exit {status}"], "properties": listed}


class SingleCases(unittest.TestCase):
    def run_cases(self, *names):
        tests = [described("right", 0), described("wrong", 3), described("skipped", 77, SKIP_RETURN_CODE=77),
                 described("no_skip", 77)]
        with tempfile.TemporaryDirectory() as folder:
            listed = pathlib.Path(folder) / "tests.json"
            listed.write_text(json.dumps({"tests": tests}))
            ctest = pathlib.Path(folder) / "ctest"
            ctest.write_text(f"#!/bin/sh\ncat {listed}\n")
            ctest.chmod(0o755)
            ended = subprocess.run([ROOT / "tools" / "test-cases", folder, *names], capture_output=True, text=True,
                                   env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        return ended.returncode, ended.stdout.splitlines()[-1:] or ended.stderr.splitlines()[-1:]

    def test_a_failure_fails(self):
        self.assertEqual(self.run_cases("right", "wrong"), (1, ["1 passed, 1 failed"]))
        self.assertEqual(self.run_cases("no_skip"), (1, ["0 passed, 1 failed"]))

    def test_a_skipped_one_does_not(self):
        self.assertEqual(self.run_cases("right", "skipped"), (0, ["1 passed, 0 failed, 1 skipped"]))

    def test_no_such_name(self):
        status, said = self.run_cases("nothing")
        self.assertEqual(status, 2)
        self.assertIn("no test or case has 'nothing' in its name", said[0])


if __name__ == "__main__":
    unittest.main()
