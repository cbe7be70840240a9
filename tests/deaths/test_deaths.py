"""For each way to die, `spillway report` alone says why, of whom, and how much: of a program under `spillway run`,
in its default mode and with Spillway as the allocator, and of PyTorch's own memory snapshots."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from machine import (BUILD, MIB, PROGRAMS, ROOT, SCRIPTS, SPILLWAY, Died, call, died_natively, died_under_run, report,
                     simulate, was_killed)

REPLACE = ("--mode", "replace", "--host-budget", "0")
NEIGHBOUR = (sys.executable, PROGRAMS / "neighbour.py", "140")


def row(death, source, cause, *texts, **how):
    """`texts`: patterns that the report must have, the verdict first."""
    return death, source, cause, texts, how


# The report names who called, and server.py's frames would be below those of a script.
STARTED = {"SPILLWAY_TEST_COLD": "1"}
TABLE = [
    row("capacity", "run", "capacity", r"8\.22 MiB too much", r"by +torch/optim/adam.py:\d+ .*from capacity.py:9",
        capacity="1GiB"),
    row("capacity", "replace", "capacity", r"8\.22 MiB too much", r"320\.00 MiB .* capacity\.py:5", capacity="1GiB"),
    row("capacity", "snapshot", "capacity", r"8\.22 MiB too much", r"320\.08 MiB .* capacity\.py:5", capacity="1GiB"),

    row("fragmentation", "run", "fragmentation", r"144\.00 MiB are not in use", r"by +fragmentation.py:8 activations"),
    row("fragmentation", "snapshot", "fragmentation", r"144\.00 MiB are not in use, but in pieces of at most 64\.00",
        r"yes +PyTorch's expandable segments"),

    row("leak", "run", "growth", r"rose all along, from [\d.]+ MiB to [\d.]+ MiB in", SECONDS_A_STEP="0.15"),
    row("leak", "replace", "leak", r"blocks of .*leak\.py:\d+ <module> were kept: [56]\.\d+ MiB more after each step",
        **STARTED),
    row("leak", "snapshot", "leak", r"blocks of .*leak\.py:\d+ <module> were kept: 6\.00 MiB more after each step"),

    row("neighbour", "run", "other processes", r"process \d+ \(.*\) holds 140\.00 MiB", r"\+ others +140\.00 MiB",
        neighbour=True),
    row("neighbour", "run", "other processes", r"other processes hold", neighbour=True, options=("--limit", "200MiB")),
    row("neighbour", "replace", "other processes", r"process \d+ \(.*\) holds 140\.00 MiB", r"\+ others +140\.00 MiB",
        neighbour=True),
    row("neighbour", "snapshot", "outside bytes", r"other libraries or processes that are not seen hold 140\.00 MiB"),

    row("pending", "run", "pending frees", r"240\.00 MiB are freed but still in use", r"by +pending\.py:11"),
    row("pending", "replace", "pending frees", r"240\.00 MiB are freed but still in use", r"by +pending\.py:11",
        r"pending: 240\.00 MiB in 10 blocks wait for work of stream 0x"),
    row("pending", "snapshot", "pending frees", r"240\.00 MiB are freed but still in use", r"by +pending\.py:11"),

    row("pools", "run", "pool isolation", r"144\.00 MiB lie in other memory pools", r"by +pools\.py:8"),
    row("pools", "replace", "pool isolation", r"144\.00 MiB lie in other .*; pool \d+ holds 144\.00 MiB, allocated by",
        r"by +pools\.py:8", r"144\.00 MiB +0 B +pool \d+ +0 +pools\.py:6 <listcomp>"),
    row("pools", "snapshot", "pool isolation", r"144\.00 MiB lie in other .*; pool \(0, 1\) holds 144\.00 MiB, alloc",
        r"by +pools\.py:8", r"144\.00 MiB +0 B +pool \(0, 1\) +0 +pools\.py:6 <listcomp>"),

    row("own_limit", "run", "limit", r"36\.00 MiB too much; the limit is 64\.00 MiB on a device of 256\.00 MiB; the "
        r"limit of 64\.00 MiB is PyTorch's own \(torch\.cuda\.set_per_process_memory_fraction\), and 256\.00 MiB "
        r"of the card are free: 0\.40 would have let this request in", r"by +own_limit\.py:\d+"),
    row("own_limit", "replace", "limit", r"the limit is 64\.00 MiB on a device of 256\.00 MiB"),
    row("own_limit", "snapshot", "limit", r"256\.00 MiB of the card were free.*set_per_process_memory_fraction"),
    row("capacity", "run", "limit", r"the limit is 900\.00 MiB on a device of 4\.00 GiB", capacity="4GiB",
        options=("--limit", "900MiB")),
    row("capacity", "replace", "limit", r"the limit is 900\.00 MiB on a device of 4\.00 GiB", capacity="4GiB",
        options=("--limit", "900MiB")),

    row("host_memory", "run", "host memory", r"256\.00 MiB of host memory were asked for, not of the card",
        r"by +host_memory\.py:\d+"),
    row("host_memory", "replace", "host memory", r"256\.00 MiB of host memory were asked for, not of the card"),

    row("evaluation", "run", "growth", r"rose all along", r"by +evaluation\.py:\d+", SECONDS_A_STEP="0.08"),
    row("evaluation", "replace", "leak", r"blocks of .*evaluation\.py:\d+ <module> were kept: 3\.91 MiB more",
        **STARTED),
    row("evaluation", "snapshot", "leak", r"blocks of .*evaluation\.py:\d+ <module> were kept: 3\.91 MiB more"),

    row("growing_cache", "run", "growth", r"rose all along", r"by +growing_cache\.py:\d+", SECONDS_A_STEP="0.03"),
    row("growing_cache", "replace", "growth", r"4 blocks of .*growing_cache\.py:\d+ <module> grow.* (1\.9|2\.0)\d MiB",
        **STARTED),
    row("growing_cache", "snapshot", "growth", r"4 blocks of .*growing_cache\.py:\d+ <module> grow.* 2\.00 MiB larger"),

    row("growing_layers", "replace", "growth", r"blocks of growing_layers\.py:1[3-9] attend grow: made anew again",
        capacity="600MiB"),
    row("kept_losses", "replace", "leak", r"blocks of kept_losses\.py:10 <module> were kept: 1[0-2]\.\d+ MiB more",
        capacity="400MiB", **STARTED),
    row("keeping_server", "replace", "leak", r"2\d\d\.\d+ MiB in \d+ blocks of keeping_server\.py:\d+ answer were k",
        capacity="300MiB"),

    row("one_large_batch", "run", "capacity", r"84\.02 MiB too much", r"by +one_large_batch\.py:10"),
    row("one_large_batch", "replace", "capacity", r"this step takes 318\.00 MiB, and none before it took more than 24",
        r"by +one_large_batch\.py:10"),
    row("one_large_batch", "snapshot", "capacity", r"this step takes 318\.00 MiB, and none before it took more than 24",
        r"by +one_large_batch\.py:10"),
]


def die(death, source, how):
    how = dict(how)
    options = how.pop("options", ())
    neighbour = how.pop("neighbour", False)
    before = (SPILLWAY, "run", "--quiet", "--", *NEIGHBOUR) if neighbour else ()
    program = "beside_neighbour" if death == "neighbour" else death
    if source == "snapshot":
        return died_natively(program, before=NEIGHBOUR if death == "neighbour" else (), **how)
    if source == "replace":
        return died_under_run(program, *REPLACE, *options, before=before, **how)
    return died_under_run(program, *options, before=before, **how)


class Deaths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Three at a time: some of them wait, and PyTorch's allocator is looked at four times a second."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
            cls.died = list(pool.map(lambda one: die(one[0], one[1], one[4]), TABLE))

    def test_the_verdict_is_the_right_one(self):
        for (death, source, cause, texts, _), died in zip(TABLE, self.died, strict=True):
            with self.subTest(death=death, source=source):
                self.assertIsNotNone(died.data, died.errors)
                self.assertEqual(died.cause, cause, died.verdict)
                self.assertIn(f"Verdict: {cause}: ", died.text)
                self.assertRegex(died.verdict, texts[0])
                for text in texts[1:]:
                    self.assertRegex(died.text, text)

    def test_the_equation_closes(self):
        for (death, source, _, _, _), died in zip(TABLE, self.died, strict=True):
            if source == "snapshot" or death == "host_memory":
                continue
            with self.subTest(death=death, source=source):
                self.assertEqual(died.incident["equation"]["residual_bytes"], 0)

    def test_data_names_the_other_process(self):
        for (death, source, _, _, _), died in zip(TABLE, self.died, strict=True):
            if death == "neighbour" and source != "snapshot":
                self.assertEqual([one["held_bytes"] for one in died.incident["other_processes"]], [140 * MIB])


class Single(unittest.TestCase):
    def test_what_spillway_mends_is_no_death(self):
        died = died_under_run("fragmentation", *REPLACE)
        self.assertEqual(died.status, 0, died.errors)

    def test_a_library_that_pytorchs_cache_starves(self):
        died = died_under_run("nccl_beside_cache", "--strategies", "none", machine=("--gpus", "2"))
        self.assertEqual(died.cause, "another library")
        self.assertRegex(died.verdict, r"libnccl.so.2 asked the driver for .* PyTorch's cache holds [\d.]+ MiB that "
                                       r"nothing uses: torch.cuda.empty_cache\(\)")
        served = died_under_run("nccl_beside_cache", machine=("--gpus", "2"))
        self.assertEqual(served.status, 0, served.errors)
        self.assertIn("RESCUED: the only allocation failure", served.text)

    def test_a_file_that_is_full(self):
        with tempfile.TemporaryDirectory() as folder:
            died = died_under_run(f"nvme_full {BUILD / 'lib' / 'libspillway.so'}", *REPLACE, "--nvme",
                                  f"{folder}:16MiB", "--max-slowdown", "none")
        self.assertEqual(died.cause, "capacity")
        self.assertRegex(died.verdict, r"spill_to_nvme could not help: .* must go, and the file takes")

    def test_who_is_killed_leaves_what_it_held(self):
        for options in ((), REPLACE):
            died = died_under_run("killed", *options)
            self.assertTrue(was_killed(died.status), died.errors)
            self.assertFalse(died.data["run"]["ended"])
            self.assertRegex(died.text, "(?m)^The process ended without closing the trace: it was killed, or crashed")
            self.assertEqual(died.cause, "capacity")
        self.assertRegex(died.text, r"Of device 0 it had 230\.00 MiB in use at last")


def training(folder, *options, width=512, steps=3):
    return [BUILD / "bin" / "spillway-train", "--config", ROOT / "configs" / "tiny.toml", "--device", "cuda",
            "--set", f"run.out={folder}/run", "--set", f"model.width={width}", "--set", f"train.steps={steps}",
            "--set", f"data.corpus={ROOT / '.deps' / 'corpus.txt'}", *options]


def until(true, longest=20):
    end = time.monotonic() + longest
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def is_running(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Trainer(unittest.TestCase):
    def trained(self, capacity, *options, before=(), values="compute", **how):
        with tempfile.TemporaryDirectory() as folder:
            command = [*before, *training(folder, *options, **how)]
            done = call(simulate(capacity, *command, values=values), folder, OMP_NUM_THREADS="1")
            return self.died_in(folder, done.returncode, done.stderr)

    def died_in(self, folder, status, errors):
        trace = pathlib.Path(folder) / "run" / "trace.spill"
        return Died(status, errors, report(trace), json.loads(report("--json", trace)))

    def test_a_card_that_is_too_small(self):
        died = self.trained("40MiB")
        self.assertEqual((died.status, died.cause), (17, "capacity"), died.errors)
        self.assertRegex(died.verdict, r"1\.33 MiB too much; 33\.31 MiB live and 8\.01 MiB asked")

    def test_a_limit_that_is_too_low(self):
        died = self.trained("256MiB", "--limit", "40MiB")
        self.assertEqual((died.status, died.cause), (17, "limit"), died.errors)
        self.assertRegex(died.verdict, r"1\.33 MiB too much; the limit is 40\.00 MiB on a device of 256\.00 MiB")
        least = self.trained("64MiB", "--limit", "1MiB", width=64)
        self.assertEqual((least.status, least.cause), (17, "limit"), least.errors)
        self.assertRegex(least.verdict, r"the 1\.00 MiB that are free below it are no whole page")

    def test_one_too_large_batch(self):
        """The move that was chosen for it is not tried any more: that is no rescue."""
        died = self.trained("40MiB", "--set", "train.batch=4096", "--set", "recovery.attempts=1", width=64)
        self.assertEqual((died.status, died.cause), (17, "capacity"), died.errors)
        self.assertRegex(died.verdict, r"29\.\d+ MiB too much; 5\.\d+ MiB live and 64\.00 MiB asked")
        self.assertIn("NOT RESCUED: 1 of 1 allocation failure.", died.text)
        self.assertEqual(died.incident["outcome"], "gave up")

    def test_a_host_that_refuses_the_optimizers_state(self):
        """Its address space is what the same training needs that has the state on the card."""
        with tempfile.TemporaryDirectory() as folder:
            roomy = training(folder, width=2048, steps=1_000_000)
            needed = call(simulate("4GiB", "bash", SCRIPTS / "addresses_of_a_step.sh", *roomy), folder,
                          OMP_NUM_THREADS="1")
        self.assertRegex(needed.stdout, r"^\d+\n$", needed.stderr)
        limited = ("bash", "-c", f'ulimit -v {needed.stdout.strip()}; exec "$@"', "limited")
        died = self.trained("4GiB", "--set", "plan.optimizer=host", before=limited, width=2048, values="zeros")
        self.assertEqual(died.status, 17, died.errors)
        self.assertEqual(died.cause, "host memory", died.text)
        self.assertRegex(died.errors, r"the host has no \d+ bytes")
        self.assertRegex(died.verdict, r"[\d.]+ MiB of host memory were asked for, not of the card; .* \(ulimit -v")
        self.assertIn("NOT RESCUED: 1 of 1 allocation failure.", died.text)

    def test_another_training_on_the_card(self):
        """It is no program under `spillway run`, so who it is is not known."""
        with tempfile.TemporaryDirectory() as folder:
            other = training(folder, "--limit", "40MiB", width=256, steps=1_000_000)
            died = self.trained("72MiB", before=("bash", SCRIPTS / "beside_training.sh", *other, "--"))
        self.assertEqual((died.status, died.cause), (17, "outside bytes"), died.errors)
        self.assertRegex(died.verdict, r"other libraries or processes that are not seen hold 40\.00 MiB")

    def test_who_is_killed_leaves_what_it_held(self):
        with tempfile.TemporaryDirectory() as folder:
            command = training(folder, "--limit", "5MiB", width=64, steps=1_000_000)
            died = call(simulate("64MiB", "bash", SCRIPTS / "killed_in_a_step.sh", *command, values="compute"), folder,
                        OMP_NUM_THREADS="1")
            died = self.died_in(folder, died.returncode, died.stderr)
        self.assertTrue(was_killed(died.status), died.errors)
        self.assertFalse(died.data["run"]["ended"])
        self.assertGreaterEqual(died.data["run"]["last_step_begun"]["step"], 1)
        self.assertRegex(died.text, "(?m)^The process ended without closing the trace: it was killed, or crashed")
        self.assertRegex(died.text, r"Of device 0 it had [\d.]+ MiB in use at last")
        self.assertRegex(died.text, r"(?m)^RESCUED: .*by doing a step again with another plan")

    def test_a_script_that_is_killed_leaves_no_training(self):
        """As subprocess.run does when its time is over."""
        training = ("bash", "-c", "echo $$; exec sleep 100")  # writes no step
        for words in (("killed_in_a_step.sh", *training), ("addresses_of_a_step.sh", *training),
                      ("beside_training.sh", *training, "--", "true")):
            with self.subTest(words[0]), tempfile.TemporaryDirectory() as folder:
                script = subprocess.Popen(["bash", SCRIPTS / words[0], *words[1:]],
                                          env={**os.environ, "TMPDIR": folder})
                until(lambda: any(log.stat().st_size for log in pathlib.Path(folder).iterdir()))
                own = int(next(pathlib.Path(folder).iterdir()).read_text())
                script.kill()
                script.wait()
                until(lambda: not is_running(own))


if __name__ == "__main__":
    unittest.main()
