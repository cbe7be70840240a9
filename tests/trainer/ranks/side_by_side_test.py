"""What cases that run side by side show, and what is refused: programs of a few cases, each as a file of its own."""
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent


class SideBySide(unittest.TestCase):
    def start(self, text, *words):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        program = pathlib.Path(holder.name) / "cases.py"
        program.write_text("import sys, unittest\nimport side_by_side\n" + textwrap.dedent(text) +
                           "side_by_side.main(2)\n")
        return subprocess.Popen([sys.executable, program, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "PYTHONPATH": str(FOLDER)})

    def ended(self, text, *words):
        started = self.start(text, *words)
        _, errors = started.communicate(timeout=60)
        return started.returncode, errors

    def test_what_runs_and_what_has_ended_is_shown_before_all_have(self):
        started = self.start("""
            class Cases(unittest.TestCase):
                def test_fails(self):
                    self.fail("a reason")
                def test_waits(self):
                    sys.stdin.read()
            """)
        shown = ""
        while not ("a reason" in shown and "begun test_waits" in shown):
            line = started.stderr.readline()
            self.assertTrue(line, f"ended without it: {shown}")
            shown += line
        self.assertIsNone(started.poll())
        _, errors = started.communicate(timeout=60)
        self.assertRegex(errors, r"test_waits .*ok\n(.|\n)*FAILED\ntest_fails")
        self.assertEqual(started.returncode, 1)

    def test_failfast_begins_none_after_a_failure(self):
        cases = """
            class Cases(unittest.TestCase):
                pass
            for number in range(9):
                setattr(Cases, f"test_{number}", lambda self: self.fail())
            """
        self.assertIn("Ran 9 tests", self.ended(cases)[1])
        code, errors = self.ended(cases, "-f")
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"Ran [12] tests in .*, [78] not begun after a failure")

    def test_what_is_set_up_once_for_all_is_refused(self):
        for name, text in (("Cases.setUpClass", """
                class Base(unittest.TestCase):
                    @classmethod
                    def setUpClass(cls):
                        pass
                class Cases(Base):
                    def test_nothing(self):
                        pass
                """), ("__main__.tearDownModule", """
                def tearDownModule():
                    pass
                class Cases(unittest.TestCase):
                    def test_nothing(self):
                        pass
                """)):
            code, errors = self.ended(text)
            self.assertEqual(code, 1)
            self.assertIn(f"{name} is not called for cases that run side by side", errors)

    def test_output_is_not_taken_from_all_cases_at_once(self):
        code, errors = self.ended("", "-b")
        self.assertEqual(code, 1)
        self.assertIn("run one case without it", errors)


if __name__ == "__main__":
    unittest.main()
