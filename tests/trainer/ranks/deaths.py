"""Ranks that die, hang, are stopped, fail or lose the store: all others end, say who it was, and report one incident.

    deaths.py BUILD CORPUS
"""
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

import ranks
from ranks import DEADLINE, free_port, reports

BOUND = 3  # seconds without a sign of life
ENDED = 18  # the exit code of a rank that ends because of another one
F_SETPIPE_SZ = 1031


def until(true, what, processes=()):
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        assert all(one.poll() is None for one in processes), [one.communicate()[1] for one in processes]
        time.sleep(0.02)


def has_bytes(path):
    return lambda: path.is_file() and path.stat().st_size > 0


class Proxy:
    """Passes a connection's bytes on, until it does so no more."""

    def __init__(self, port):
        self.to, self.stopped, self.open = port, threading.Event(), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:  # closed
                return
            there = self.reach()
            self.open += [here, there]
            for one, other in (here, there), (there, here):
                threading.Thread(target=self.pass_on, args=(one, other), daemon=True).start()

    def reach(self):
        """Rank 0 may not have come yet."""
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.to))
            except ConnectionRefusedError:
                time.sleep(0.05)

    def pass_on(self, one, other):
        while not self.stopped.is_set() and (data := one.recv(1 << 16)):
            other.sendall(data)
        # Both ends stay open: a network that is gone says nothing.

    def close(self):
        for one in [*self.open, self.listener]:
            one.close()


class Case(ranks.Case):
    def begun(self, size=3, **settings):
        """Ranks that have done a step, and their folder."""
        folder = self.fresh_folder()
        defaults = {"train.steps": 100000, "run.ranks_bound": BOUND, "run.ranks_beat": 0.2, "train.batch": size}
        processes = self.start(size, folder, **{**defaults, **settings})
        self.addCleanup(self.end, processes)
        until(has_bytes(folder / "out" / "losses.txt"), "the first step", processes)
        return processes, folder

    def end(self, processes):
        for one in processes:
            if one.poll() is None:
                one.kill()
                one.communicate()
            one.stderr.close()

    def side_by_side(self, folder):
        return reports.text_of(ranks.BUILD / "bin" / "spillway", folder / "out")

    def report(self, folder, rank):
        path = folder / "out" / (f"rank-{rank}" if rank else ".") / "report.json"
        return json.loads(path.read_text())

    def assert_one_incident(self, done, folder, of, cause, without=()):
        """All ranks but `without` name it alike: on the console, in their results and in their reports."""
        numbers = set()
        for rank, error in enumerate(done.errors):
            if rank in without:
                continue
            self.assertEqual(done.codes[rank], ENDED, error)
            self.assertRegex(error, cause)
            results = json.loads((folder / f"results{f'.rank-{rank}' if rank else ''}.json").read_text())
            incident = self.report(folder, rank)["rank"]["incident"]
            self.assertEqual(incident, results["incident"])
            self.assertEqual(incident["rank"], of)
            self.assertRegex(incident["cause"], cause)
            self.assertIn(f"incident {incident['number']}: ", error)
            numbers.add(incident["number"])
        self.assertEqual(len(numbers), 1, numbers)
        self.assertRegex(numbers.pop(), "^[0-9a-f]{12}$")


class Deaths(Case):
    def test_a_rank_that_is_killed(self):
        processes, folder = self.begun(**{"run.zero": 3})
        processes[1].kill()
        done = self.ended(processes, folder)
        self.assertEqual(done.codes[1], -signal.SIGKILL)
        self.assert_one_incident(done, folder, 1, r"rank 1 died: its process \d+ on this machine is gone \(last seen in"
                                 r" step \d+: ", without=[1])
        number = self.report(folder, 0)["rank"]["incident"]["number"]
        text = self.side_by_side(folder)
        self.assertIn(f"spillway-train: 3 ranks, start {number}\nfirst  rank 1, incident {number}\n"
                      "cause  rank 1 died", text)
        self.assertRegex(text, r"\n +1 +- +.*no report of this start: it was killed\n")
        self.assertRegex(text, r"\n +2 +\d+ +- +- +- +0 +\d+\.\d s +micro_batch=")
        self.assertIn(f"\n  rank 2: incident {number}: rank 1 died", text)

    def test_the_rank_that_keeps_the_store_is_killed(self):
        processes, folder = self.begun(**{"run.zero": 2})
        processes[0].kill()
        done = self.ended(processes, folder)
        self.assert_one_incident(done, folder, 0, r"rank 0 died", without=[0])

    def test_a_rank_that_is_stopped_and_goes_on_later(self):
        begun = [self.begun(**{"run.zero": 1}), self.begun()]
        for rank, (processes, _) in enumerate(begun):
            processes[rank].send_signal(signal.SIGSTOP)
        causes = ("rank 0('s| does not answer for .*: its) process .* is stopped",
                  "rank 1 does not answer for .* is stopped")
        for rank, ((processes, folder), cause) in enumerate(zip(begun, causes)):
            others = [one for one in processes if one != processes[rank]]
            until(lambda: all(one.poll() is not None for one in others), "the others' end")
            self.assertIsNone(processes[rank].poll())
            processes[rank].send_signal(signal.SIGCONT)
            done = self.ended(processes, folder)
            self.assert_one_incident(done, folder, rank, cause, without=[rank])
            self.assertEqual(done.codes[rank], ENDED, done.errors[rank])
            number = self.report(folder, 2)["rank"]["incident"]["number"]
            self.assertIn(f"incident {number}: ", done.errors[rank])

    def test_a_rank_that_is_stopped_for_a_moment(self):
        processes, folder = self.begun(2, **{"run.ranks_bound": 60})
        losses = folder / "out" / "losses.txt"
        processes[1].send_signal(signal.SIGSTOP)
        until(lambda: pathlib.Path(f"/proc/{processes[1].pid}/stat").read_text().split()[2] == "T", "the stop")
        processes[1].send_signal(signal.SIGCONT)
        size = losses.stat().st_size
        until(lambda: losses.stat().st_size > size + 200, "more steps", processes)

    def test_a_rank_whose_training_thread_hangs(self):
        """Its file of losses is a pipe that nobody reads."""
        folder = self.fresh_folder()
        pipe = folder / "out" / "rank-1" / "losses.txt"
        pipe.parent.mkdir(parents=True)
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        fcntl.fcntl(reader, F_SETPIPE_SZ, 4096)
        processes = self.start(2, folder, **{"train.steps": 100000, "run.ranks_bound": BOUND, "run.ranks_beat": 0.2,
                                             "train.batch": 2, "model.layers": 1, "model.context": 8})
        self.addCleanup(self.end, processes)
        done = self.ended(processes, folder)
        self.assert_one_incident(done, folder, 1,
                                 r"rank 1 hangs: no progress for .* in step \d+: the records of a step")

    def test_a_rank_that_its_launcher_ends(self):
        """All end after the same step, with a checkpoint; where the others do not come to that, by an incident."""
        processes, folder = self.begun()
        processes[2].terminate()
        done = self.ended(processes, folder)
        self.assertEqual(done.codes, [143] * 3, done.errors)
        self.assertIn("rank 2: interrupted by SIGTERM after step", done.errors[2])
        self.assertTrue((folder / "out" / "checkpoint.safetensors").exists())
        processes, folder = self.begun(**{"run.ranks_bound": 40})
        processes[1].send_signal(signal.SIGSTOP)
        processes[2].terminate()
        others = [processes[0], processes[2]]
        until(lambda: all(one.poll() is not None for one in others), "the others' end")
        processes[1].kill()
        done = self.ended(processes, folder)
        self.assert_one_incident(done, folder, 2, r"rank 2 was ended from outside \(SIGTERM\)", without=[1])

    def test_a_rank_that_fails_says_why(self):
        """The first rank cannot save the weights; the second one is behind the last step by then."""
        folder = self.fresh_folder()
        processes = self.start(2, folder, **{"train.steps": 2, "run.ranks_bound": BOUND, "run.save": "/proc/nowhere"})
        done = self.ended(processes, folder)
        self.assertEqual(done.codes, [1, ENDED], done.errors)
        self.assertIn("rank 0 ended: the weights could not be saved", done.errors[1])
        own = json.loads((folder / "results.json").read_text())["incident"]
        self.assertEqual(own, self.report(folder, 1)["rank"]["incident"])

    def test_a_rank_that_no_longer_reaches_the_store(self):
        port = free_port()
        proxy = Proxy(port)
        self.addCleanup(proxy.close)
        processes, folder = self.begun(ports={0: port, 1: proxy.port, 2: port})
        proxy.stopped.set()
        done = self.ended(processes, folder)
        numbers = {self.report(folder, rank)["rank"]["incident"]["number"] for rank in range(3)}
        self.assertEqual(len(numbers), 1)
        self.assertEqual(done.codes, [ENDED] * 3, done.errors)
        for rank, cause in enumerate(["rank 1 does not answer for", "the store at .* does not answer rank 1 for",
                                      "rank 1 does not answer for"]):
            self.assertRegex(done.errors[rank], cause)


class OnCards(Case):
    """Over the simulated NCCL: the other rank waits for its device, and cannot end by itself."""

    def on_two_cards(self, script, limits=("1GiB", "1GiB"), capacity="1GiB", **settings):
        """`script` has the ranks' processes as $a and $b, and their folder as $F."""
        folder = self.fresh_folder()
        words = self.command(folder, "cuda", {"train.steps": 100000, "run.ranks_bound": BOUND, "run.ranks_beat": 0.2,
                                              **settings})
        start = "; ".join(f'RANK={rank} LOCAL_RANK={rank} "$@" --limit {limit} 2> $F/{rank}.txt & {name}=$!'
                          for rank, (name, limit) in enumerate(zip("ab", limits)))
        ends = 'wait $a; echo $? > $F/codes; kill -CONT $b 2> $F/none; wait $b; echo $? >> $F/codes'
        environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "F": str(folder)}
        subprocess.run([ranks.BUILD / "bin" / "spillway", "simulate", "--capacity", capacity, "--gpus", "2", "--values",
                        "compute", "--", "bash", "-c", f"{start}; {script}; {ends}", "bash", *words], timeout=DEADLINE,
                       capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
        codes = [int(code) for code in (folder / "codes").read_text().split()]
        return ranks.Ended(folder, codes, [(folder / f"{rank}.txt").read_text() for rank in range(2)]), folder

    BEGUN = "until [ -s $F/out/losses.txt ]; do sleep 0.05; done"

    def test_a_rank_that_is_killed(self):
        done, folder = self.on_two_cards(f"{self.BEGUN}; kill -9 $b", **{"run.zero": 3})
        self.assert_one_incident(done, folder, 1, "rank 1 died: its process", without=[1])

    def test_a_rank_that_is_stopped(self):
        done, folder = self.on_two_cards(f"{self.BEGUN}; kill -STOP $b", **{"run.zero": 2})
        self.assert_one_incident(done, folder, 1, "rank 1 does not answer for .* is stopped", without=[1])
        self.assertEqual(done.codes[1], ENDED, done.errors)

    def test_a_rank_that_has_no_plan_left(self):
        done, folder = self.on_two_cards("true", ("1GiB", "2MiB"))
        self.assertEqual(done.codes, [ENDED, 17], done.errors)
        self.assertRegex(done.errors[0], "incident [0-9a-f]{12}: rank 1 ended: .*(no room|no plan is left)")


    def test_cards_that_are_too_small_for_the_communication(self):
        """NCCL's buffers do not fit; each rank says so, and does not wait for the bound."""
        begun = time.monotonic()
        done, _ = self.on_two_cards("true", ("40MiB", "40MiB"), "48MiB", **{"run.ranks_bound": 90})
        self.assertEqual(done.codes, [17, 17], done.errors)
        for error in done.errors:
            self.assertIn("out of memory: no room for the buffers of the ranks' communication", error)
        self.assertLess(time.monotonic() - begun, 60)


class Quiet(Case):
    def test_nobody_watches_where_the_bound_is_0(self):
        done = self.train(2, **{"run.ranks_bound": 0})
        self.assertIsNone(self.report(done.folder, 1)["rank"])

    def test_long_ends_are_no_incidents(self):
        """Ranks that end one after the other, and an interrupt."""
        done = self.train(3, **{"run.ranks_bound": BOUND, "run.ranks_beat": 0.1})
        for rank in range(3):
            part = self.report(done.folder, rank)["rank"]
            self.assertEqual((part["rank"], part["size"], part["incident"]), (rank, 3, None))
        processes, folder = self.begun(2, **{"run.ranks_beat": 0.1})
        processes[1].send_signal(signal.SIGINT)
        done = self.ended(processes, folder)
        self.assertEqual(done.codes, [130, 130], done.errors)


if __name__ == "__main__":
    unittest.main()
