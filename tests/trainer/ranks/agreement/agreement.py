"""Ranks that run out of memory in a step of which the others have part: all undo it and make it anew, or end together.

    agreement.py BUILD CORPUS [--all]     fails each request of a step, of each rank, and not some of each phase
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

ALL = "--all" in sys.argv
sys.argv = [word for word in sys.argv if word != "--all"]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import ranks  # noqa: E402
import side_by_side  # noqa: E402
from ranks import BUILD, CORPUS, ON_CARDS, free_port  # noqa: E402


# Of some 215 requests the backward has those from 150 on, when others have part of the step those from 180 on, and the
# commit those from 210 on.
SOME = ("155", "29")
# From stage 2 on of two layers, one of which is computed again: of some 430.
SOME_OF_TWO_LAYERS = ("275", "62")


class Sweep(unittest.TestCase):
    """Each rank in turn fails at a request of a step, and at all that follow until it has another plan."""

    def swept(self, zero, *cases, size=2, requests=None, phases=("backward", "optimizer")):
        """For each case what the ranks did that failed, and what the others did."""
        requests = ("1", "1") if ALL else requests or (SOME if zero in (0, 1) else SOME_OF_TWO_LAYERS)
        done = subprocess.run([BUILD / "bin" / "spillway", "simulate", "--capacity", "1GiB", "--gpus", str(size),
                               "--values", "compute", "--", sys.executable, "-m", "torch.distributed.run",
                               f"--nproc-per-node={size}", f"--master-port={free_port()}", "--no-python",
                               BUILD / "bin" / "ranks_sweep", CORPUS, str(zero), *requests, *cases],
                              capture_output=True, text=True, timeout=None if ALL else 300,
                              env={**os.environ, **ON_CARDS})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-3000:])
        found = re.findall(r"(\w+): rank (\d), of rank (\d) (\d+) trainings, (\d+) failures, (\d+) recoveries in(.*)",
                           done.stdout)
        own = {rank: int(trainings) for case, rank, of, trainings, *_ in found if case == "moves" and rank == of}
        for case in cases:
            victims = [line for line in found if line[0] == case and line[1] == line[2]]
            self.assertEqual(len(victims), 1 if case == "all" else size, done.stdout)
            for _, rank, _, trainings, failures, _, found_in in victims:
                self.assertGreater(int(trainings), 2)
                if case == "all":
                    # As many trainings as the rank with most requests has. One with fewer fails in the later ones
                    # when it begins the step anew, for the other's sake.
                    self.assertEqual(int(trainings), max(own.values()))
                    self.assertTrue(own[rank] <= int(failures) <= int(trainings), done.stdout)
                else:
                    self.assertEqual(failures, trainings)
                for phase in phases:
                    self.assertIn(phase, found_in)
        return {case: [(int(line[3]), int(line[5])) for line in found if line[0] == case and line[1] != line[2]]
                for case in cases}

    def test_of_the_stages_of_a_pipeline(self):
        """A stage makes what keeps every bit again by itself, from what it was sent; a split is made by all."""
        others = self.swept("line", "moves", "splits", *(["once", "all", "replay", "attempts", "gives_up", "common"]
                                                         if ALL else []), requests=("201", "36"))
        self.assert_none(others["moves"])
        self.assertTrue(all(trainings == recoveries for trainings, recoveries in others["splits"]))

    def assert_some(self, others):
        for trainings, recoveries in others:
            self.assertTrue(0 < recoveries < trainings, "in some of the trainings")

    def assert_none(self, others):
        for _, recoveries in others:
            self.assertEqual(recoveries, 0)

    def test_with_whole_states(self):
        others = self.swept(0, "splits", "gives_up", *(["once", "replay"] if ALL else []))
        self.assert_some(others["splits"])
        self.assertTrue(all(trainings == recoveries for trainings, recoveries in others["gives_up"]))
        self.assert_none(others.get("once", []))
        self.assert_some(others.get("replay", []))

    def test_a_move_that_cannot_be_adopted(self):
        """Of four layers, whose step has some 600 requests: slots for layers on the host have no room."""
        for zero in (0, 3) if ALL else (0,):
            self.swept(zero, "adoption", requests=None if ALL else ("300", "130"), phases=("backward", "forward"))

    def test_with_shares_of_the_states(self):
        others = self.swept(1, "moves", "all", "attempts", *(["splits"] if ALL else []))
        self.assert_none(others["moves"])
        self.assert_some(others.get("splits", []))

    def test_with_shared_gradients(self):
        others = self.swept(2, "splits", *(["common"] if ALL else []))
        self.assertTrue(all(trainings == recoveries for trainings, recoveries in others["splits"]))

    def test_with_shared_weights(self):
        """Nothing of a pass can be made again without the others; an update can."""
        others = self.swept(3, "moves", "splits", "adopts", "common")
        for case in "moves", "adopts":
            self.assertTrue(all(0 < recoveries <= trainings for trainings, recoveries in others[case]), case)
        self.assertTrue(all(trainings == recoveries for trainings, recoveries in others["splits"]))


class Training(ranks.Case):
    """Of two cards the second one has too little memory for a step that begins at once, or for an evaluation."""

    TIGHT = {"train.batch": 32, "plan.micro_batch": 1, "recovery.floor": "bit_exact", "evaluation.windows": 32}
    LATER = {"plan.schedule": "[{step=3, micro_batch=16}]"}

    def test_all_give_up_with_a_checkpoint_at_every_stage(self):
        for zero in 0, 1:
            settings = {**self.TIGHT, **self.LATER, "run.zero": zero}
            undisturbed = self.on_cards(2, **settings)
            ended = self.on_cards(2, limits=("1GiB", "7MiB"), fails=True, **settings)
            results = [json.loads((ended.folder / f"results{name}.json").read_text()) for name in ("", ".rank-1")]
            for result in results:
                self.assertEqual(result["exit_code"], 17, result)
                self.assertIn("out of memory in step 3 and no plan is left on rank 1: ", result["verdict"])
                self.assertEqual(result["incident"]["rank"], 1)
                self.assertEqual(result["incident"], results[0]["incident"])
                self.assertEqual(result["weights"], results[0]["weights"])
                self.assertEqual(result["recoveries"][-1]["action"], "give_up")
                self.assertEqual(result["recoveries"][-1]["rank"], 1)
            again = self.on_cards(2, options=("--resume", str(ended.folder / "out")), **settings)
            self.assertEqual(len(again.steps()), 3)
            self.assertEqual(again.steps(), undisturbed.steps()[3:])
            self.assertEqual(again.results["weights"], undisturbed.results["weights"])

    def test_all_give_up_and_rank_0_has_no_room_for_the_checkpoint(self):
        """All have one incident, of rank 0, whichever comes first to the store."""
        settings = {**self.TIGHT, **self.LATER, "run.zero": 1}
        ended = self.on_cards(2, limits=("1GiB", "7MiB"), fails=True, blocked="checkpoint.safetensors.tmp", **settings)
        results = [json.loads((ended.folder / f"results{name}.json").read_text()) for name in ("", ".rank-1")]
        self.assertEqual([result["exit_code"] for result in results], [1, 18])
        self.assertEqual(results[0]["incident"], results[1]["incident"])
        self.assertEqual(results[0]["incident"]["rank"], 0)
        self.assertRegex(results[0]["incident"]["cause"], "rank 0 ended: .*checkpoint.safetensors.* "
                                                          r"\(out of memory in step 3 and no plan is left on rank 1: ")

    def test_a_schedules_plan_has_no_room_on_one_rank(self):
        settings = {"train.batch": 2, "model.width": 256, "plan.optimizer": "host", "evaluation.windows": 2,
                    "plan.schedule": "[{step=2, optimizer='device'}]"}
        ended = self.on_cards(2, limits=("1GiB", "30MiB"), values="zeros", fails=True, **settings)
        self.assertEqual(ended.results["exit_code"], 17, ended.results)
        self.assertRegex(ended.results["verdict"], "in step 2 and no plan is left on rank 1: no room for the plan that "
                                                   "the schedule has: ")
        self.assertTrue((ended.folder / "out" / "checkpoint.safetensors").exists())

    def test_all_give_up_in_an_evaluation(self):
        settings = {**self.TIGHT, "evaluation.every": 2, "evaluation.windows": 128, "plan.evaluation_batch": 64,
                    "run.zero": 1}
        ended = self.on_cards(2, limits=("1GiB", "7MiB"), fails=True, **settings)
        self.assertEqual(ended.results["exit_code"], 17)
        self.assertIn("out of memory while evaluating and no plan is left on rank 1: ", ended.results["verdict"])
        self.assertTrue((ended.folder / "out" / "checkpoint.safetensors").exists())


class Strikes(unittest.TestCase):
    """Ranks on CPUs, of which the second one asks to undo a step, and one is struck meanwhile."""

    def start(self, size, rank, where, how):
        port = str(free_port())
        one = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return [subprocess.Popen([BUILD / "bin" / "ranks_struck", CORPUS, str(rank), where, how],
                                 env={**one, "RANK": str(i), "LOCAL_RANK": str(i)}, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for i in range(size)]

    def assert_all_end(self, processes, rank, how, cause):
        others = [process for process in processes if process != processes[rank]]
        errors = [process.communicate(timeout=ranks.DEADLINE)[1] for process in others]
        self.assertEqual([process.returncode for process in others], [18] * len(others), errors)
        if how == "stop":
            self.assertIsNone(processes[rank].poll())
            processes[rank].send_signal(signal.SIGCONT)
        errors.append(processes[rank].communicate(timeout=ranks.DEADLINE)[1])
        self.assertEqual(processes[rank].returncode, {"kill": -signal.SIGKILL, "full": 1}.get(how, 18), errors)
        told = [re.findall("incident ([0-9a-f]{12}): (.*)", error)[0] for error in errors if "incident" in error]
        self.assertEqual(len(told), len(errors) - (how in ("kill", "full")), errors)  # that says what it ran out of
        self.assertEqual(len({number for number, _ in told}), 1, told)
        for _, text in told[: len(others)]:  # one that was stopped finds nobody later, and has words of its own
            self.assertRegex(text, cause)

    def test_nobody(self):
        for process in self.start(2, 9, "drains", "kill"):
            _, error = process.communicate(timeout=ranks.DEADLINE)
            self.assertEqual(process.returncode, 0, error)

    def test_all_end_with_one_incident(self):
        cases = [(3, 1, "drains", "kill", "rank 1 died: "), (2, 0, "speaks", "kill", "rank 0 died"),
                 (3, 2, "is-ready", "kill", "rank 2 died: "), (2, 1, "drains", "stop", "rank 1 does not answer"),
                 (2, 0, "is-ready", "stop", "rank 0's process .* is stopped|rank 0 does not answer"),
                 (2, 0, "speaks", "hang", "rank 0 hangs: no progress for .* in step 3: "),
                 (3, 2, "sums", "full", "rank 2 ended: out of memory in the middle of a sum over the ranks: no room")]
        begun = [self.start(*case[:-1]) for case in cases]
        self.addCleanup(lambda: [process.kill() for processes in begun for process in processes])
        for processes, (_, rank, _, how, cause) in zip(begun, cases):
            self.assert_all_end(processes, rank, how, cause)


if __name__ == "__main__":
    side_by_side.main(2)
