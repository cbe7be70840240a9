"""Kills and stops ranks at random instants, again and again: each time all end within the bound, the training goes on
from its checkpoint, and at its end each step is there once, with the bits of a training that nobody disturbed. Each
start is at the next stage of ZeRO: all have the same bits, and a checkpoint goes on at any of them.

    kills.py BUILD CORPUS [--kills N] [--seed N] [--mesh]     half of them under torchrun, half started again by hand

With --mesh four ranks are two stages of a pipeline, and two of each, at stage 0 and 1 of ZeRO.
"""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import ranks
from ranks import free_port

STEPS, BOUND, START = 50, 3, 20
LONGEST_END = START + BOUND + 30  # before all have met they wait for START; a rank at its end has 30 seconds for it
SETTINGS = {"train.steps": STEPS, "run.checkpoint_every": 3, "run.ranks_bound": BOUND, "run.ranks_beat": 0.2,
            "run.ranks_timeout": START, "model.layers": 2, "evaluation.windows": 2}
MESH = {"run.stages": 2, "plan.micro_batch": 1}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mesh", action="store_true")
    return parser.parse_args()


class Kills(ranks.Case):
    """The functions of the tests, without a test."""

    def runTest(self):
        arguments = parse()
        self.random = random.Random(arguments.seed)
        self.size, self.settings = (4, {**SETTINGS, **MESH}) if arguments.mesh else (2, SETTINGS)
        print(f"seed {arguments.seed}", flush=True)
        self.whole = self.train(self.size, **self.settings)
        self.seen = {"SIGKILL": 0, "SIGSTOP": 0}
        self.stages = [0] * (2 if arguments.mesh else 4)  # of ZeRO: starts at each
        by_hand = arguments.kills // 2
        self.by_hand(by_hand)
        self.under_torchrun(arguments.kills - by_hand)
        if by_hand >= len(self.stages):
            self.assertTrue(all(self.stages), self.stages)
        print(f"{self.seen['SIGKILL']} kills and {self.seen['SIGSTOP']} stops, "
              f"{self.stages} starts at the stages from 0 on of ZeRO; each step once, with its bits")

    def at_a_stage(self):
        zero = sum(self.stages) % len(self.stages)
        self.stages[zero] += 1
        return self.settings | {"run.zero": zero}

    def strike(self, processes, folder, is_over):
        """At a random instant, one of the processes (ids); what it returns is stopped, and goes on later."""
        losses = folder / "out" / "losses.txt"
        before = losses.stat().st_size if losses.exists() else 0
        early = self.random.random() < 0.15  # before the ranks have met, perhaps
        while not early and not is_over() and not (losses.exists() and losses.stat().st_size > before):
            time.sleep(0.01)
        time.sleep(self.random.uniform(0, 1.5 if early else 0.5))
        victim, stops = self.random.choice(processes), self.random.random() < 0.3
        try:
            os.kill(victim, signal.SIGSTOP if stops else signal.SIGKILL)
        except ProcessLookupError:
            return None
        self.seen["SIGSTOP" if stops else "SIGKILL"] += 1
        return victim if stops else None

    def go_on_later(self, stopped):
        """Past the bound: the others have ended by then."""
        if stopped:
            time.sleep(BOUND + 2)
            os.kill(stopped, signal.SIGCONT)

    def assert_undisturbed(self, folder):
        lines = [line.split() for line in (folder / "out" / "losses.txt").read_text().splitlines()]
        steps = [line for line in lines if line[0] != "evaluation"]
        self.assertEqual([int(step) for step, _, _ in steps], list(range(STEPS)), "each step once")
        self.assertEqual([tuple(values) for _, *values in steps], self.whole.steps())
        self.assertEqual(ranks.Ended(folder, [], []).results["weights"], self.whole.results["weights"])

    def by_hand(self, kills):
        folder = self.fresh_folder()
        while True:
            saved = (folder / "out" / "checkpoint.safetensors").exists()
            options = ("--resume", str(folder / "out")) if saved else ()
            processes = self.start(self.size, folder, options=options, **self.at_a_stage())
            if kills > 0:
                kills -= 1
                ended = lambda: any(one.poll() is not None for one in processes)
                self.go_on_later(self.strike([one.pid for one in processes], folder, ended))
            codes = []
            for one in processes:
                _, error = one.communicate(timeout=LONGEST_END)
                codes.append(one.returncode)
                told = "did not come within" in error or "do not meet" in error  # struck before they had met
                self.assertIn(one.returncode, (0, 18, -signal.SIGKILL, 1 if told else 0), error)
            if codes == [0] * self.size:
                if kills == 0:
                    return self.assert_undisturbed(folder)
                self.assert_undisturbed(folder)
                folder = self.fresh_folder()

    def workers(self, launcher):
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == launcher.pid:
                    if b"spillway-train" in (folder / "cmdline").read_bytes():
                        found.append(int(folder.name))
            except (OSError, IndexError):
                continue
        return found

    def under_torchrun(self, kills):
        while kills > 0:
            folder, before = self.fresh_folder(), dict(self.seen)
            launcher = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={self.size}",
                 f"--max-restarts={kills + 1}", f"--master-port={free_port()}", "--no-python",
                 *self.command(folder, "cpu", self.at_a_stage())],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            last = []
            while kills > 0 and launcher.poll() is None:
                processes = self.workers(launcher)
                if len(processes) < self.size or processes == last:
                    time.sleep(0.05)
                    continue
                last, count = processes, sum(self.seen.values())
                stopped = self.strike(processes, folder, lambda: not self.workers(launcher))
                kills -= sum(self.seen.values()) - count
                if stopped:
                    try:
                        self.go_on_later(stopped)
                    except ProcessLookupError:
                        pass
            _, error = launcher.communicate(timeout=LONGEST_END + 60)
            self.assertEqual(launcher.returncode, 0, (before, self.seen, error[-3000:]))
            self.assert_undisturbed(folder)


if __name__ == "__main__":
    import unittest
    done = unittest.TextTestRunner(verbosity=0).run(Kills())
    sys.exit(not done.wasSuccessful())
