"""Children and workers of a program under `spillway run`, and what they share by the driver's legacy handles."""
import pathlib
import re
import sys
import unittest

from case import OWN, PROGRAMS, SPILLWAY, Case, reports

# Of programs/legacy_ipc.py: no driver has such handles for memory that is mapped by pages.
CARD = ("--values", "compute", "--gpus", "1", "--capacity", "1GiB")
GRAPH, TENSOR = "graph read [8] [22]\ngraph sent [22]\n", "tensor read [10] [5]\ntensor sent [5]\n"
NO_GRAPH, NO_TENSOR = "graph refused 1\ngraph sent [8]\n", "tensor refused 1\ntensor sent [{}]\n"


# Nothing has used the card before they are forked. Each takes all of its memory, and says its number.
FORKED_WORKERS = """
import multiprocessing, os, torch

def work():
    kept = []
    try:
        while True:
            kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        print(os.getpid(), flush=True)

multiprocessing.set_start_method("fork")
for _ in range(2):
    worker = multiprocessing.Process(target=work)
    worker.start()
    worker.join()
    assert worker.exitcode == 0
"""


def pages(folder):
    return pathlib.Path(folder).glob("*.html")


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
        self.assertIn("no memory failure of a driver call;", ended.line)

    def test_forked_workers_have_their_failures_in_reports_of_their_own(self):
        """Spillway is installed before the fork."""
        ended = self.run_on(sys.executable, "-c", FORKED_WORKERS, options=["--mode", "replace", "--host-budget", "0"],
                            card=("--capacity", "256MiB"))
        self.assertEqual(ended.status, 0, ended.errors)
        self.assertIn("2 memory failures met, 0 rescued, 2 not", ended.line)
        traces = re.findall(r"report: spillway report ([^\s;]+)", ended.line)
        workers = ended.output.split()
        self.assertEqual(sorted(trace.rsplit(".", 1)[1] for trace in traces), sorted(workers), ended.line)
        for trace in traces:
            found = reports.data_of(SPILLWAY, trace)
            self.assertEqual([one["outcome"] for one in found["incidents"]], ["gave up"])
            self.assertIn(pathlib.Path(trace).name, "".join(path.read_text() for path in pages(self.folder)))

    def test_a_program_that_is_killed_has_counted(self):
        ended = self.run_on(sys.executable, "-c", """
import os, signal, torch
torch.ones(4, device="cuda")
os.kill(os.getpid(), signal.SIGKILL)
""")
        self.assertEqual(ended.status, 137)
        self.assertGreater(ended.number(r"(\d+) driver calls"), 100)


class LegacyIpc(Case):
    def share(self, **settings):
        ended = self.run_on(sys.executable, OWN / "legacy_ipc.py", card=CARD,
                            options=["--mode", "replace", "--trace", "%p.spill"],
                            SPILLWAY_SIM_PROFILE="no-ipc", **settings)
        self.assertEqual(ended.status, 0, ended.errors)
        return ended

    def test_mapped_memory_is_refused_and_the_setting_named(self):
        ended = self.share()
        self.assertEqual(ended.output, NO_GRAPH + NO_TENSOR.format(3))
        self.assertEqual(ended.errors.count("cuIpcGetMemHandle"), 1, ended.errors)
        self.assertRegex(ended.errors, "cuIpcGetMemHandle was refused for memory that is mapped.*SPILLWAY_LEGACY_IPC")

    def test_buffers_of_graphs_are_shared(self):
        ended = self.share(SPILLWAY_LEGACY_IPC="pools")
        self.assertEqual(ended.output, GRAPH + NO_TENSOR.format(10))
        self.assertIn("=pools: tensors of CUDA graphs and MemPools lie in", "".join(ended.reports.values()))

    def test_every_tensor_is_shared(self):
        ended = self.share(SPILLWAY_LEGACY_IPC="all")
        self.assertEqual(ended.output, GRAPH + TENSOR)
        self.assertRegex("".join(ended.reports.values()), "SPILLWAY_LEGACY_IPC=all: every tensor .* neither stitched")
        self.assertNotIn("refused", ended.errors)


if __name__ == "__main__":
    unittest.main()
