"""Several ranks of the trainer that train one model: on CPUs over Gloo, on simulated GPUs over the simulated NCCL.

    ranks.py BUILD CORPUS
"""
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import side_by_side

CORPUS = pathlib.Path(sys.argv.pop(2)).resolve()
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import reports  # noqa: E402

TRAINER = BUILD / "bin" / "spillway-train"
DEADLINE = 120
# The trainer waits for each of its collectives, and leaves nothing to PyTorch's watchdog.
ON_CARDS = {"OMP_NUM_THREADS": "1", "SPILLWAY_SIM_WATCHDOG": "free"}


def free_port():
    """Below those that the system gives to connections, of which the ranks of other tests make many meanwhile."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def children_of(process):
    return [int(pid) for pid in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]


class Ended:
    def __init__(self, folder, codes, errors, output=""):
        self.folder, self.codes, self.errors, self.output = folder, codes, errors, output
        path = folder / "results.json"
        self.results = json.loads(path.read_text()) if path.is_file() and path.stat().st_size else {}

    def steps(self):
        """The loss and the gradient's norm of each step, as they were written: each bit."""
        lines = (self.folder / "out" / "losses.txt").read_text().splitlines()
        return [tuple(line.split()[1:]) for line in lines if not line.startswith("evaluation")]

    def losses(self):
        return [float.fromhex(loss) for loss, _ in self.steps()]


class Case(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.config = ROOT / "configs" / "tiny.toml"
        self.runs = 0

    def command(self, folder, device, settings):
        words = [TRAINER, "--config", self.config, "--device", device, "--json",
                 folder / "results.json"]
        for name, value in {"run.out": f"{folder}/out", "data.corpus": CORPUS, "run.threads": 1, "train.steps": 6,
                            "evaluation.windows": 8, "run.ranks_timeout": 60, **settings}.items():
            words += ["--set", f"{name}={value}"]
        return [str(word) for word in words]

    def start(self, size, folder, device="cpu", of_rank=None, options=(), present=None, ports=None,
              options_of_rank=None, **settings):
        """The processes of ranks 0 to size - 1, or of those that are present; `ports`: where each finds the store."""
        port = free_port()
        ranks = []
        for rank in present if present is not None else range(size):
            own = {**settings, **(of_rank or {}).get(rank, {})}
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[rank] if ports else port)}
            words = [*self.command(folder, device, own), *options, *(options_of_rank or {}).get(rank, ())]
            ranks.append(subprocess.Popen(words, env=environment,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        return ranks

    def fresh_folder(self):
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        return folder

    def ended(self, ranks, folder):
        errors = [rank.communicate(timeout=DEADLINE)[1] for rank in ranks]
        return Ended(folder, [rank.returncode for rank in ranks], errors)

    def train(self, size, **arguments):
        folder = self.fresh_folder()
        done = self.ended(self.start(size, folder, **arguments), folder)
        self.assertEqual(done.codes, [0] * size, done.errors)
        return done

    def saved(self, size, steps, resumed=None, **settings):
        """Trained in bfloat16, with checkpoints in `out` and the weights in `weights`."""
        folder = self.fresh_folder()
        options = ("--resume", str(resumed / "out")) if resumed else ()
        done = self.ended(self.start(size, folder, options=options, **{
            "train.precision": "bf16-mixed", "train.steps": steps, "run.checkpoint_every": 1,
            "run.save": folder / "weights", **settings}), folder)
        self.assertEqual(done.codes, [0] * size, done.errors)
        return done

    def on_cards(self, size, limits=None, values="compute", options=(), fails=False, blocked=None, watchdog="free",
                 **settings):
        """On a simulated machine with so many cards, started by torchrun; `limits`: of each rank's card.

        `blocked`: a file of rank 0 that cannot be written."""
        folder = self.fresh_folder()
        if blocked:
            (folder / "out" / blocked).mkdir(parents=True)
        words = self.command(folder, "cuda", settings) + list(options)
        if limits:
            cases = " ".join(f"{rank}) limit={limit};;" for rank, limit in enumerate(limits))
            words = ["bash", "-c", f'case $RANK in {cases} esac; exec "$@" --limit $limit', "bash", *words]
        done = subprocess.run([BUILD / "bin" / "spillway", "simulate", "--capacity", "1GiB", "--gpus", str(size),
                               "--values", values, "--", sys.executable, "-m", "torch.distributed.run",
                               f"--nproc-per-node={size}", f"--master-port={free_port()}", "--no-python", *words],
                              capture_output=True, text=True, timeout=DEADLINE,
                              env={**os.environ, **ON_CARDS, "SPILLWAY_SIM_WATCHDOG": watchdog})
        self.assertEqual(done.returncode != 0, fails, done.stdout[-4000:] + done.stderr[-4000:])
        return Ended(folder, [0] * size, [done.stderr], done.stdout)

    def assert_near(self, one, other, most=1e-4):
        self.assertEqual(len(one.losses()), len(other.losses()))
        for here, there in zip(one.losses(), other.losses()):
            self.assertLess(abs(here - there), most * there)


class DataParallel(Case):
    def test_ranks_train_as_one_does(self):
        alone = self.train(1)
        for size in 2, 3:  # of 8 sequences 4 and 4; 3, 3 and 2
            together = self.train(size)
            self.assert_near(together, alone)
            self.assertAlmostEqual(together.results["evaluation_loss"], alone.results["evaluation_loss"], places=4)
            self.assertFalse((together.folder / "out" / "rank-1" / "checkpoint.safetensors").exists())
            self.assertEqual(together.steps(), self.train(size).steps())

    def test_a_loss_is_by_the_targets_of_all_ranks(self):
        """A T5's rows have different numbers of targets: the mean of the ranks' means would be another loss."""
        t5 = {"model.family": "t5", "train.seed": 3}
        self.assert_near(self.train(2, **t5), self.train(1, **t5))

    def test_cards_have_the_bits_of_processors(self):
        cards, processors = self.on_cards(2, watchdog="awaited"), self.train(2)
        self.assertEqual(cards.steps(), processors.steps())
        self.assertEqual(cards.results["weights"], processors.results["weights"])

    def test_ranks_drop_different_numbers(self):
        """Of a text of one letter all rows are the same, and so are the ranks' losses, but for what they drop."""
        text = self.folder / "letters.txt"
        text.write_text("a" * 20000)

        def first_loss(size, dropout):
            settings = {"data.corpus": text, "train.batch": size, "train.steps": 1, "model.dropout": dropout}
            return self.train(size, **settings).losses()[0]

        self.assertEqual(first_loss(2, 0), first_loss(4, 0))
        self.assertNotEqual(first_loss(2, 0.2), first_loss(4, 0.2))
        self.assertEqual(first_loss(2, 0.2), first_loss(2, 0.2))


class Recovery(Case):
    def test_a_rank_that_runs_out_of_memory_changes_its_plan_alone(self):
        settings = {"train.batch": 32, "recovery.floor": "bit_exact"}
        undisturbed = self.on_cards(2, **settings)
        tight = self.on_cards(2, limits=("1GiB", "10MiB"), **settings)
        second = json.loads((tight.folder / "results.rank-1.json").read_text())
        self.assertGreater(sum(device["unwound"] for device in second["devices"]), 0, second)
        self.assertEqual(sum(device["unwound"] for device in tight.results["devices"]), 0)
        told = reports.run(BUILD / "bin" / "spillway", tight.folder / "out")
        traces = sorted((tight.folder / "out").rglob("*.spill"))
        self.assertEqual(len(traces), 2, traces)
        for trace in traces:
            reports.text_of(BUILD / "bin" / "spillway", trace)
        self.assertIn("spillway-train: 2 ranks, start ", told.stdout, told.stderr)
        self.assertRegex(told.stdout, r"\n +1 +5 .* 10\.00 MiB +[1-9]\d* .* s +micro_batch=.*recompute")
        self.assertRegex(told.stdout, r"\nDifferences\n  rank 1 has the plan .*recompute")
        self.assertEqual(tight.steps(), undisturbed.steps())
        self.assertEqual(tight.results["weights"], undisturbed.results["weights"])

    def test_a_checkpoint_of_two_ranks_goes_on_with_three(self):
        """Adam's first steps are larger than what sums of another order change."""
        whole = self.train(2)
        folder = self.fresh_folder()
        first = self.ended(self.start(2, folder, **{"run.checkpoint_every": 3, "train.steps": 3}), folder)
        self.assertEqual(first.codes, [0, 0], first.errors)
        for size in 2, 3:
            last = self.train(size, options=("--resume", str(folder / "out")))
            self.assertEqual(len(last.losses()), 3)
            for here, there in zip(last.losses(), whole.losses()[3:]):
                self.assertLess(abs(here - there), 1e-4 * there)
            if size == 2:
                self.assertEqual(last.steps(), whole.steps()[3:])

    def test_ranks_that_are_started_again_go_on_from_their_checkpoint(self):
        """A rank that is killed in its first start, and not in its second."""
        steps = 60
        whole = self.train(2, **{"train.steps": steps})
        folder = self.fresh_folder()
        (folder / "out").mkdir()
        saved = folder / "out" / "checkpoint.safetensors"
        saved.write_text("of another run")
        words = self.command(folder, "cpu", {"train.steps": steps, "run.checkpoint_every": 1, "run.ranks_timeout": 30})
        once = ('if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then "$@" & '
                f'until [ -e {saved}.of-an-earlier-run ] && [ -s {saved} ]; do sleep 0.02; done; kill -9 $!; wait $!; '
                'else exec "$@"; fi')
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1",
                               f"--master-port={free_port()}", "--no-python", "bash", "-c", once, "bash", *words],
                              capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(pathlib.Path(f"{saved}.of-an-earlier-run").read_text(), "of another run")
        again = Ended(folder, [0, 0], [done.stderr])
        self.assertEqual(again.results["weights"], whole.results["weights"])
        self.assertLess(again.results["steps"], steps)

    def test_a_launcher_that_is_ended_ends_its_ranks_with_a_checkpoint(self):
        """Slurm, Kubernetes and systemd send SIGTERM to torchrun, which passes it on; some send it to the ranks too."""
        for also_ranks in False, True:
            folder = self.fresh_folder()
            words = self.command(folder, "cpu", {"train.steps": 100000})
            launcher = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                                         f"--master-port={free_port()}", "--no-python", *words],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            losses = folder / "out" / "losses.txt"
            until = time.monotonic() + DEADLINE
            while not losses.is_file() or losses.stat().st_size == 0:
                self.assertLess(time.monotonic(), until)
                self.assertIsNone(launcher.poll())
                time.sleep(0.05)
            if also_ranks:
                for rank in children_of(launcher.pid):
                    os.kill(rank, signal.SIGTERM)
            launcher.terminate()
            _, errors = launcher.communicate(timeout=DEADLINE)
            self.assertIn("interrupted by SIGTERM after step", errors)
            for rank in range(2):
                results = json.loads((folder / f"results{f'.rank-{rank}' if rank else ''}.json").read_text())
                self.assertEqual((results["exit_code"], results["incident"]), (143, None), errors)
            self.assertTrue((folder / "out" / "checkpoint.safetensors").exists())

    def test_an_interrupt_of_one_rank_ends_all_after_the_same_step(self):
        folder = self.fresh_folder()
        ranks = self.start(2, folder, **{"train.steps": 100000})
        losses = folder / "out" / "losses.txt"
        until = time.monotonic() + DEADLINE
        while not losses.is_file() or losses.stat().st_size == 0:
            self.assertLess(time.monotonic(), until)
            self.assertIsNone(ranks[0].poll())
            time.sleep(0.05)
        ranks[1].send_signal(signal.SIGINT)
        done = self.ended(ranks, folder)
        self.assertEqual(done.codes, [130, 130], done.errors)
        self.assertIn("rank 1: interrupted after step", done.errors[1])
        self.assertTrue((folder / "out" / "checkpoint.safetensors").exists())


class Errors(Case):
    def refused(self, size, message, code, **arguments):
        folder = self.fresh_folder()
        done = self.ended(self.start(size, folder, **arguments), folder)
        for rank, error in enumerate(done.errors):
            self.assertIn(message, error, (rank, done.codes))
        self.assertEqual(done.codes, [code] * len(done.codes), done.errors)

    def test_a_rank_that_does_not_come(self):
        self.refused(3, "of 3 ranks these did not come within 2 seconds (run.ranks_timeout): 1, 2", 1, present=[0],
                     **{"run.ranks_timeout": 2})

    def test_a_first_rank_that_is_not_there(self):
        self.refused(2, "the ranks do not meet: rank 1 does not reach 127.0.0.1:", 1, present=[1],
                     **{"run.ranks_timeout": 2})

    def test_a_port_that_is_another_programs(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            self.refused(2, "accepts connections and does not answer rank 1", 1, present=[1],
                         ports={1: other.getsockname()[1]}, **{"run.ranks_timeout": 2})

    def test_ranks_with_other_settings(self):
        self.refused(2, "rank 0 and rank 1 do not go together, their settings differ: 'train.batch = 8' and "
                        "'train.batch = 9'", 1, of_rank={1: {"train.batch": 9}})

    def test_more_ranks_than_sequences(self):
        self.refused(3, "train.batch is 2, fewer sequences than the 3 ranks", 2, **{"train.batch": 2})


if __name__ == "__main__":
    side_by_side.main(2)
