"""A call of gpu-check that is ended goes on where it stopped, and its archive's manifest finds what was changed."""
import json
import math
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
from gpu_check import manifest, results  # noqa: E402
from gpu_check.machine import CheckFailed, OutOfTime, build_name  # noqa: E402
from gpu_check.part import Group, Outcome, Part  # noqa: E402
from gpu_check.session import Session, State, StateError  # noqa: E402

GROUPS = {"table": Group("table", ["", "| head |"])}
ABOUT = {"commit": "c0ffee", "card": "NVIDIA H200"}


class Nowhere:
    deadline = None


class SessionCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.ran, self.said = pathlib.Path(folder.name), [], []

    def part(self, name, seconds=1, end=None):
        def run(_):
            self.ran.append(name)
            if end:
                raise end
            return Outcome([f"| {name} | right |"], data={"of": name})
        return Part("table", name, seconds, run)

    def call(self, *parts, seconds=math.inf, about=None):
        state = State(self.folder, about or ABOUT)
        session = Session(state, seconds, lambda *lines: self.said.extend(lines))
        session.run(parts, GROUPS, [Nowhere()], None, lambda: None)
        return [part.name for part in session.remaining(parts)], state

    def test_parts_run_once_in_their_order(self):
        parts = [self.part("first"), self.part("second")]
        self.assertEqual(self.call(*parts)[0], [])
        self.assertEqual(self.call(*parts)[0], [])
        self.assertEqual(self.ran, ["first", "second"])
        self.assertEqual(self.said, ["", "| head |", "| first | right |", "| second | right |"])

    def test_a_part_that_does_not_fit_waits_for_the_next_call(self):
        parts = [self.part("first"), self.part("long", seconds=80), self.part("short")]
        with unittest.mock.patch("time.monotonic", iter(range(0, 10000, 15)).__next__):
            self.assertEqual(self.call(*parts, seconds=100)[0], ["long"])
        self.assertEqual(self.ran, ["first", "short"])
        self.assertEqual(self.call(*parts, seconds=100)[0], [])

    def test_a_part_longer_than_a_call_begins_a_call_of_its_own(self):
        self.assertEqual(self.call(self.part("long", seconds=200), seconds=100)[0], [])

    def test_a_part_that_is_stopped_is_run_again_and_then_given_up(self):
        stopped = self.part("slow", end=OutOfTime())
        for _ in range(3):
            self.assertEqual(self.call(stopped, self.part("next"))[0], ["slow"])
        remain, state = self.call(stopped, self.part("next"))
        self.assertEqual((remain, self.ran), ([], ["slow", "next", "slow", "slow"]))
        self.assertEqual(state.entry(stopped)["state"], "FAIL")
        self.assertIn("did not end", state.entry(stopped)["rows"][0])

    def test_a_call_that_is_killed_costs_its_part_alone(self):
        with self.assertRaises(KeyboardInterrupt):
            self.call(self.part("first"), self.part("killed", end=KeyboardInterrupt()), self.part("last"))
        self.assertEqual(State(self.folder, ABOUT).entry(self.part("killed"))["state"], "running")
        self.assertEqual(self.call(self.part("first"), self.part("killed"), self.part("last"))[0], [])
        self.assertEqual(self.ran, ["first", "killed", "killed", "last"])

    def test_a_failure_ends_no_other_part(self):
        remain, state = self.call(self.part("wrong", end=CheckFailed("values | differ")), self.part("next"))
        self.assertEqual(remain, [])
        self.assertEqual(state.entry(self.part("wrong"))["state"], "FAIL")
        self.assertIn("| wrong | FAIL | values / differ |", self.said)

    def test_a_folder_is_of_one_card_and_one_commit(self):
        self.call(self.part("first"))
        with self.assertRaisesRegex(StateError, "another card: NVIDIA H200, not Tesla T4"):
            State(self.folder, dict(ABOUT, card="Tesla T4"))
        (self.folder / "state.json").write_text("{")
        with self.assertRaisesRegex(StateError, "name another folder"):
            State(self.folder, ABOUT)

    def test_the_results_are_of_all_calls(self):
        parts = [self.part("first"), self.part("slow", end=OutOfTime())]
        _, state = self.call(*parts)
        results.write(self.folder, "NVIDIA H200", parts, GROUPS, state, ["a: no torch"])
        text = (self.folder / "results.md").read_text()
        for line in ("| head |", "| first | right |", "1 of 2 parts are done", "- not done yet: table: slow",
                     "- left out: a: no torch"):
            self.assertIn(line, text)
        self.assertEqual(json.loads((self.folder / "raw/table-first.json").read_text()), {"of": "first"})
        self.assertEqual(json.loads((self.folder / "results.json").read_text())["about"], ABOUT)


class Manifest(unittest.TestCase):
    def test_every_change_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "bin").mkdir()
            for file in ("bin/a", "bin/b", "c"):
                (root / file).write_bytes(b"0123456789" * 100)
            manifest.write(root, {"commit": "c0ffee"})
            self.assertEqual((list(manifest.faults(root)), manifest.read(root)["commit"]), ([], "c0ffee"))
            changed = bytearray((root / "bin/a").read_bytes())
            changed[500] ^= 1
            (root / "bin/a").write_bytes(changed)
            (root / "c").unlink()
            self.assertEqual(list(manifest.faults(root)), ["bin/a is not the file that was packed", "c is missing"])

    def test_the_programs_are_those_for_the_torch_that_is_there(self):
        packed = {"trainers": {"2.15": "build", "2.11": "build-2.11"}}
        self.assertEqual([build_name(packed, lambda version=version: version) for version in ("2.15", "2.11", "2.7")],
                         ["build", "build-2.11", "build"])
        self.assertEqual(build_name(None, lambda: self.fail("a source tree has one build")), "build")


if __name__ == "__main__":
    unittest.main()
