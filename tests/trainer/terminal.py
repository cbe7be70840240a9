"""The trainer's progress on a terminal: one line drawn in place, what is printed above it, and nothing of it left.

    terminal.py BUILD
"""
import fcntl
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
STEP = re.compile(r"step (\d+)/(\d+)  loss [\d.]+  \d+ tokens/s  (\d+ days|[\d:]+) left")


class Screen:
    """What a terminal shows that knows \\r, \\n, "erase to the end of the line" and wraps at its width."""

    def __init__(self, columns):
        self.columns, self.lines, self.column, self.seen = columns, [""], 0, []

    def take(self, text):
        while text:
            if match := re.match(r"\x1b\[K", text):
                self.lines[-1] = self.lines[-1][:self.column]
            elif match := re.match(r"\r", text):
                self.column = 0
            elif match := re.match(r"\n", text):
                self.lines.append("")
                self.column = 0
            else:
                match = re.match(r"[^\r\n\x1b]+", text)
                self._write(match.group())
            text = text[match.end():]

    def _write(self, words):
        for letter in words:
            if self.column == self.columns:
                self.lines.append("")
                self.column = 0
            line = self.lines[-1].ljust(self.column)
            self.lines[-1] = line[:self.column] + letter + line[self.column + 1:]
            self.column += 1
        self.seen.append(self.lines[-1])


class Run:
    """The trainer on a terminal of its own; `until` is called with all that came, and its signal is sent once."""

    def __init__(self, folder, *options, columns=100, term="xterm", steps=200, until=None, stops=signal.SIGINT):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        corpus = pathlib.Path(folder) / "corpus.txt"
        corpus.write_text("the page spills to host and back again.\n" * 500)
        command = [BUILD / "bin/spillway-train", "--config", folder_config(folder), "--set", f"run.out={folder}/run",
                   "--set", f"data.corpus={corpus}", "--set", f"train.steps={steps}", *options]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs,
                                   env=dict(os.environ, TERM=term, OMP_NUM_THREADS="1"))
        os.close(theirs)
        self.raw = ""
        while chunk := self._read(ours):
            self.raw += chunk
            if until and until(self.raw):
                process.send_signal(stops)
                until = None
        os.close(ours)
        self.code = process.wait()
        self.screen = Screen(columns)
        self.screen.take(self.raw)

    @staticmethod
    def _read(terminal):
        try:
            return os.read(terminal, 1 << 16).decode()
        except OSError:  # the other end is closed
            return ""


def folder_config(folder):
    path = pathlib.Path(folder) / "x.toml"
    path.write_text("[model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\n[train]\nbatch = 2\n"
                    "[evaluation]\nevery = 50\nwindows = 4\n[run]\ndevice = \"cpu\"\nthreads = 1\n")
    return path


class Terminal(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.addCleanup(self.temporary.cleanup)

    def test_the_steps_are_one_line_that_is_gone_at_the_end(self):
        run = Run(self.folder)
        self.assertEqual(run.code, 0)
        self.assertTrue(any(STEP.match(line) for line in run.screen.seen), run.raw)
        self.assertFalse([line for line in run.screen.lines if STEP.search(line)], run.raw)
        self.assertNotRegex(run.raw, r"lr \d")
        evaluations = [line for line in run.screen.lines if "evaluation loss" in line]
        self.assertEqual([line.split("  ")[0] for line in evaluations[:4]], [f"step {n}" for n in (50, 100, 150, 200)])
        self.assertIn("== spillway-train: done", run.screen.lines)
        self.assertEqual(run.screen.lines[-1], "")

    def test_it_keeps_to_the_width(self):
        run = Run(self.folder, columns=40)
        steps = [line for line in run.screen.seen if line.startswith("step ") and "/" in line]
        self.assertTrue(steps)
        self.assertLessEqual(max(map(len, steps)), 39)
        self.assertFalse([line for line in run.screen.lines if re.match(r"step \d+/", line)])

    def test_the_last_drawing_is_of_the_last_step(self):
        run = Run(self.folder)
        self.assertEqual([STEP.match(line).group(1) for line in run.screen.seen if STEP.match(line)][-1], "200")

    def test_a_dumb_terminal_gets_lines(self):
        run = Run(self.folder, term="dumb", steps=20)
        self.assertNotIn("\x1b", run.raw)
        self.assertEqual(len(re.findall(r"(?m)^step \d+/20  loss .* lr ", run.raw)), 20)

    def test_quiet_is_quiet(self):
        run = Run(self.folder, "--quiet", steps=20)
        self.assertNotIn("\x1b", run.raw)
        self.assertTrue(run.raw.startswith("\r\n== spillway-train: done"), run.raw)

    def test_an_interrupt_leaves_a_clean_screen(self):
        run = Run(self.folder, steps=1_000_000, until=lambda text: "evaluation loss" in text)
        self.assertEqual(run.code, 130)
        self.assertFalse([line for line in run.screen.lines if STEP.search(line)], run.screen.lines)
        self.assertRegex("\n".join(run.screen.lines), r"(?m)^== spillway-train: interrupted after step \d+$")

    def test_an_error_leaves_a_clean_screen(self):
        run = Run(self.folder, "--set", "run.save=/proc/nowhere", steps=60)
        self.assertEqual(run.code, 1)
        self.assertTrue(any(STEP.match(line) for line in run.screen.seen))
        self.assertFalse([line for line in run.screen.lines if STEP.search(line)])
        self.assertRegex("\n".join(run.screen.lines), r"(?m)^== spillway-train: the weights could not be saved")


if __name__ == "__main__":
    unittest.main()
