"""Ranks on two machines: network namespaces that a pair of virtual interfaces joins. Needs root, or user namespaces.

    namespaces.py BUILD CORPUS
"""
import os
import pathlib
import subprocess
import sys
import time
import unittest

import deaths
import ranks
from ranks import DEADLINE

ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29500  # of a network of our own
INTERFACE = "spillway"


def as_root():
    """Starts this program again as the root of a user namespace, where it is nobody's."""
    if os.geteuid() != 0 and "SPILLWAY_TEST_NAMESPACE" not in os.environ:
        words = [sys.executable, __file__, str(ranks.BUILD), str(ranks.CORPUS), *sys.argv[1:]]
        if subprocess.run(["unshare", "-Ur", "true"], capture_output=True).returncode == 0:
            os.execvpe("unshare", ["unshare", "-Ur", *words], {**os.environ, "SPILLWAY_TEST_NAMESPACE": "1"})


class Machines:
    """Two, each with a process that keeps its namespace."""

    def __init__(self):
        self.keepers = []
        for _ in ADDRESSES:
            keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            self.keepers.append(keeper)
            if keeper.stdout.readline() != "\n":
                raise OSError(keeper.stderr.read())
        self.ip(0, "link", "add", "name", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns",
                str(self.keepers[1].pid))
        for machine, address in enumerate(ADDRESSES):
            self.ip(machine, "address", "add", f"{address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                self.ip(machine, "link", "set", "dev", interface, "up")

    def on(self, machine):
        return ["nsenter", "--net", f"--target={self.keepers[machine].pid}", "--"]

    def ip(self, machine, *words):
        done = subprocess.run([*self.on(machine), "ip", *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(f"ip {' '.join(words)}: {done.stderr}")

    def cut(self):
        self.ip(0, "link", "set", "dev", INTERFACE, "down")

    def close(self):
        for keeper in self.keepers:
            keeper.kill()
            keeper.communicate()


class Case(deaths.Case):
    def setUp(self):
        super().setUp()
        try:
            self.machines = Machines()
        except OSError as error:
            self.skipTest(f"no network namespaces here: {error}")
        self.addCleanup(self.machines.close)

    def start_on(self, machine, words, **environment):
        process = subprocess.Popen([*self.machines.on(machine), *map(str, words)], text=True, stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
        self.addCleanup(self.end, [process])
        return process

    def torchrun(self, folder, nodes, settings, options=(), rendezvous=""):
        """A rank on each machine; both write to this folder, as to a file system that they share. By the machine's name
        torchrun would not know that the first one keeps the store."""
        return [self.start_on(machine, [
            sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", "--nproc-per-node=1",
            "--rdzv-backend=c10d", f"--rdzv-endpoint={ADDRESSES[0]}:{PORT}", "--rdzv-id=1", f"--local-addr={address}",
            f"--rdzv-conf=is_host={1 - machine}{rendezvous}", *options, "--no-python",
            *self.command(folder, "cpu", settings)])
            for machine, address in enumerate(ADDRESSES)]

    def by_hand(self, folder, settings):
        """Ranks 0 and 1 on the first machine, rank 2 on the second."""
        return [self.start_on(machine, self.command(folder, "cpu", settings), RANK=str(rank), WORLD_SIZE="3",
                              LOCAL_RANK=str(local), MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(PORT))
                for rank, (machine, local) in enumerate([(0, 0), (0, 1), (1, 0)])]


class Namespaces(Case):
    def test_two_machines_have_the_bits_of_one(self):
        here = self.train(2)
        folder = self.fresh_folder()
        done = self.ended(self.torchrun(folder, 2, {}), folder)
        self.assertEqual(done.codes, [0, 0], done.errors)
        self.assertEqual(done.steps(), here.steps())
        self.assertEqual(done.results["weights"], here.results["weights"])

    def test_a_link_that_goes_down_ends_all_ranks(self):
        folder = self.fresh_folder()
        processes = self.by_hand(folder, {"train.steps": 100000, "run.ranks_bound": deaths.BOUND,
                                         "run.ranks_beat": 0.2})
        deaths.until(deaths.has_bytes(folder / "out" / "losses.txt"), "the first step", processes)
        self.machines.cut()
        begun = time.monotonic()
        done = self.ended(processes, folder)
        self.assertLess(time.monotonic() - begun, DEADLINE / 2)
        self.assertEqual(done.codes, [deaths.ENDED] * 3, done.errors)
        numbers = {self.report(folder, rank)["rank"]["incident"]["number"] for rank in range(3)}
        self.assertEqual(len(numbers), 1, numbers)
        self.assertRegex(done.errors[1], "rank 2 does not answer for")
        self.assertRegex(done.errors[2], "(rank 0 does not|the store at 10.77.0.1:29500.* does not) answer")

    def test_torchrun_goes_on_with_the_machine_that_is_left(self):
        """In place of two ranks one goes on, from their last checkpoint."""
        steps = 300
        folder = self.fresh_folder()
        agents = self.torchrun(folder, "1:2", {
            "train.steps": steps, "run.checkpoint_every": 1, "run.ranks_bound": deaths.BOUND, "run.ranks_beat": 0.2,
            "run.ranks_timeout": 30, "model.layers": 1, "model.context": 16}, options=[
            "--max-restarts=2", "--monitor-interval=0.2"], rendezvous=",last_call_timeout=5,keep_alive_interval=1,"
                                                                       "keep_alive_max_attempt=2,read_timeout=5")
        for file in ("rank-1/losses.txt", "checkpoint.safetensors"):
            deaths.until(deaths.has_bytes(folder / "out" / file), file, agents)
        self.machines.cut()
        first = agents[0].communicate(timeout=DEADLINE)[1]
        self.assertEqual(agents[0].returncode, 0, first)
        done = ranks.Ended(folder, [0], [first])
        self.assertRegex(first, "incident [0-9a-f]{12}: rank [01] does not answer for")
        self.assertIsNone(self.report(folder, 0)["rank"], "it is alone")
        self.assertLess(done.results["steps"], steps, first)
        self.assertEqual(len(done.steps()), steps, "each step once")


if __name__ == "__main__":
    as_root()
    unittest.main()
