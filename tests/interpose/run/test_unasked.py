"""What `spillway run` leaves without being asked: the page of a failure that was not rescued, a moment after it; of a
process that did not end in order; and the user's own command."""
import json
import pathlib
import re
import subprocess
import sys
import unittest

from case import BUILD, OWN, ROOT, Case


def version():
    return subprocess.run([BUILD / "bin" / "spillway", "--version"], capture_output=True, text=True, check=True).stdout


HELD = 500 << 20  # by ending.py


class Unasked(Case):
    def end(self, failures, way, *options, mode="replace", **settings):
        return self.run_on(sys.executable, OWN / "ending.py", str(failures), way,
                           options=["--mode", mode, *options], card=("--capacity", "1GiB"), **settings)

    def left(self):
        return sorted(path.suffix for path in pathlib.Path(self.folder).iterdir())

    def page(self):
        page, = pathlib.Path(self.folder).glob("*.html")
        text = page.read_text()
        return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL).group(1))

    def test_the_page_is_there_while_the_program_goes_on(self):
        for mode in ("replace", "rescue"):
            with self.subTest(mode):
                ended = self.end(1, "page", mode=mode)
                self.assertEqual((ended.status, ended.output.splitlines()[-1]), (0, "page"), ended.errors)
                self.assertEqual(ended.errors.count("why it ran out, as a page for a browser"), 1)
                self.assertEqual(self.left(), [".html", ".spill"])
                for path in pathlib.Path(self.folder).iterdir():
                    path.unlink()

    def test_a_later_failure_is_on_the_page_too(self):
        ended = self.end(2, "end")
        self.assertEqual(ended.status, 0, ended.errors)
        report = self.page()["report"]
        self.assertEqual(report["run"]["gave_up"], 2)
        self.assertRegex(report["settings"]["driver"], r"^CUDA \d+\.\d+, simulated$")
        self.assertRegex(report["settings"]["pytorch"], r"^2\.\d+\.\d+$")
        self.assertIn(report["settings"]["spillway"], version())
        self.assertEqual(ended.errors.count("as a page for a browser"), 1)

    def test_a_process_that_was_killed_has_its_page(self):
        ended = self.end(0, "kill")
        self.assertEqual(ended.status, 137)
        self.assertIn("what it held when it was stopped, as a page for a browser", ended.errors)
        self.assertEqual(self.left(), [".html", ".spill"])
        page = self.page()
        self.assertEqual(page["report"]["at_last"]["in_use_bytes"], HELD)
        self.assertEqual([holder["bytes"] for holder in page["found"]["holders"]], [HELD])
        self.assertIn("ending.py:", page["found"]["holders"][0]["where"])

    def test_a_program_that_is_told_to_end_has_its_page_before_it_does(self):
        ended = self.end(0, "term", SPILLWAY_TEST_COLD="1")  # `spillway run` is to be its parent
        self.assertEqual((ended.status, ended.output), (0, "page\n"), ended.errors)
        self.assertEqual(self.left(), [".html", ".spill"])

    def test_an_error_of_its_own_leaves_nothing(self):
        ended = self.end(0, "error")
        self.assertEqual((ended.status, self.left()), (3, []), ended.errors)

    def test_the_exception_names_the_report(self):
        ended = self.end(1, "end")
        trace, = pathlib.Path(self.folder).glob("*.spill")
        self.assertIn(f"; report: spillway report {trace.resolve()}", ended.output)


class WithoutAReport(Case):
    def test_a_report_that_cannot_be_made_costs_no_rescue(self):
        """The disk may be full, or something else may stand there, once memory runs out."""
        program = f"""
import os, runpy, sys
open(f"spillway-{{os.getpid()}}.spill", "w").write("no trace" * 1000)
sys.argv = ["fragmenting.py"]
runpy.run_path({str(OWN / "fragmenting.py")!r}, run_name="__main__")"""
        # Not forked: the trace would be made before the program begins.
        ended = self.run_on(sys.executable, "-c", program, options=["--mode", "replace"], card=("--capacity", "4GiB"),
                            SPILLWAY_TEST_COLD="1")
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("this process will have no report: trace file", ended.errors)
        self.assertIn("1 memory failure met, 1 rescued", ended.line)
        self.assertNotIn("report:", ended.line)
        self.assertEqual(len(list(pathlib.Path(self.folder).iterdir())), 1, "the program's own file stays")


class Command(Case):
    def test_the_users_command_is_run_once_and_knows_why(self):
        command = 'echo "$SPILLWAY_OOM_TRACE|$SPILLWAY_OOM_PAGE|$SPILLWAY_OOM_VERDICT" >> told; cat >> told'
        program = OWN / "ending.py"
        ended = self.run_on(sys.executable, program, "2", "end", card=("--capacity", "1GiB"),
                            options=["--mode", "replace", "--on-oom-command", command])
        self.assertEqual(ended.status, 0, ended.errors)
        lines = (pathlib.Path(self.folder) / "told").read_text().splitlines()
        self.assertEqual(len(lines), 1, f"{lines} {ended.errors}")
        told = lines[0]
        trace, page, verdict = told.split("|")
        self.assertTrue(pathlib.Path(trace).is_file() and pathlib.Path(page).is_file(), told)
        self.assertRegex(verdict, r"^capacity: .* too much; ")

    def test_a_command_that_fails_is_said_and_changes_nothing(self):
        ended = self.run_on(sys.executable, OWN / "ending.py", "1", "error", card=("--capacity", "1GiB"),
                            options=["--mode", "replace", "--on-oom-command", "exit 7"])
        self.assertEqual(ended.status, 3)
        self.assertIn("spillway: --on-oom-command ended with 7: exit 7\n", ended.errors)

    def test_without_a_failure_it_is_not_run(self):
        ended = self.run_on(sys.executable, OWN / "ending.py", "0", "kill", card=("--capacity", "1GiB"),
                            options=["--mode", "replace", "--on-oom-command", "touch told"])
        self.assertEqual(ended.status, 137)
        self.assertFalse((pathlib.Path(self.folder) / "told").exists())


class Trainer(Case):
    def test_a_training_with_no_plan_left_leaves_its_report(self):
        out = pathlib.Path(self.folder) / "run"
        for config, limit in ("demo", "24MiB"), ("tiny", "3MiB"):  # before the first step, and in it
            with self.subTest(config):
                ended = self.simulate(BUILD / "bin" / "spillway-train", "--config", ROOT / "configs" / f"{config}.toml",
                                      "--device", "cuda", "--limit", limit, "--set", f"run.out={out}", "--quiet",
                                      "--set", f"data.corpus={ROOT / '.deps' / 'corpus.txt'}",
                                      "--json", out.with_suffix(".json"), card=("--capacity", "64MiB"))
                self.assertEqual(ended.status, 17, ended.errors)
                page = json.loads(out.with_suffix(".json").read_text())["page"]
                self.assertIn(f"page              {page}\n", ended.errors)
                self.assertIn('"outcome":"gave up"', pathlib.Path(page).read_text())
                pathlib.Path(page).unlink()


class Edge(Case):
    WANTED = r"at its peak the program wanted \d\.\d+ GiB of 4\.00 GiB \(\d+%\)"

    def rescued(self, **settings):
        ended = self.run_on(sys.executable, OWN / "fragmenting.py", options=["--mode", "replace"],
                            card=("--capacity", "4GiB"), **settings)
        self.assertEqual(ended.status, 0, ended.errors)
        line, = re.findall(r"^spillway: (at its peak .*)$", ended.errors, re.MULTILINE)
        return line

    def test_a_rescued_run_says_how_close_it_came_and_whether_that_is_closer(self):
        earlier = pathlib.Path(self.folder) / "state" / "spillway" / "runs.jsonl"
        place = {"XDG_STATE_HOME": str(earlier.parents[1]), "SPILLWAY_RUNS": ""}
        self.assertRegex(self.rescued(**place), self.WANTED + "$")
        # What stands there is another program's, or damaged, or ours.
        kept = json.loads(earlier.read_text())
        another, less = {**kept, "program": "0", "wanted_bytes": 1}, {**kept, "wanted_bytes": 2 << 30}
        damaged = f'{kept["program"]} {{', json.dumps(kept)[:-9], "\0"
        earlier.write_text("\n".join((*map(json.dumps, (kept, less, another)), *damaged, "")))
        day = r"; the run of \d{4}-\d\d-\d\d \d\d:\d\d "
        self.assertRegex(self.rescued(**place),
                         self.WANTED + day + r"was farther from the edge: 2\.00 GiB of 4\.00 GiB \(50%\), 1 failure$")
        self.assertRegex(self.rescued(**place), self.WANTED + day + "was as close: ")

    def test_earlier_runs_can_be_left_out(self):
        state = pathlib.Path(self.folder) / "state"
        for _ in range(2):
            line = self.rescued(XDG_STATE_HOME=str(state), SPILLWAY_RUNS="off")
            self.assertRegex(line, self.WANTED + "$")
        self.assertFalse(state.exists())

    def test_the_list_of_earlier_runs_stays_short(self):
        earlier = pathlib.Path(self.folder) / "runs.jsonl"
        self.rescued(SPILLWAY_RUNS=str(earlier))
        line = earlier.read_text()
        earlier.write_text(line.replace('"program":"', '"program":"x') * (300 * 1024 // len(line)) + line)
        self.assertIn("was as close", self.rescued(SPILLWAY_RUNS=str(earlier)))
        self.assertLess(earlier.stat().st_size, 200 * 1024)
        self.assertIn("was as close", self.rescued(SPILLWAY_RUNS=str(earlier)))


if __name__ == "__main__":
    unittest.main()
