"""Children and workers of a program under `spillway run`."""
import re
import sys
import unittest

from case import PROGRAMS, Case


class Processes(Case):
    def test_children_by_fork_and_by_exec_count_for_themselves(self):
        ended = self.run_on(sys.executable, PROGRAMS / "forked_child.py")
        native = self.simulate(sys.executable, PROGRAMS / "forked_child.py")
        self.assertEqual((ended.status, ended.output), (native.status, native.output), ended.errors)

    def test_workers_of_a_data_loader(self):
        arguments = [sys.executable, PROGRAMS / "data_loading.py", "--steps", "2"]
        native = self.simulate(*arguments)
        ended = self.run_on(*arguments)
        self.assertEqual((native.status, ended.status), (0, 0), ended.errors)
        memory = re.compile(r"memory_allocated=\d+")
        self.assertEqual(memory.findall(ended.output), memory.findall(native.output))
        self.assertIn("no memory failure", ended.line)

    def test_a_program_that_is_killed_has_counted(self):
        ended = self.run_on(sys.executable, "-c", """
import os, signal, torch
torch.ones(4, device="cuda")
os.kill(os.getpid(), signal.SIGKILL)
""")
        self.assertEqual(ended.status, 137)
        self.assertGreater(ended.number(r"(\d+) driver calls"), 100)


if __name__ == "__main__":
    unittest.main()
