"""Ranks that Slurm starts, on two nodes that are this machine. Needs Debian's packages slurmctld, slurmd, slurm-client
and munge, and root: the test starts its own cluster, where it sees an /etc/hosts of its own with the nodes' names.

    slurm.py BUILD CORPUS
"""
import getpass
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import ranks
from ranks import DEADLINE, TRAINER, Ended, free_port

PROGRAMS = "munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel", "sinfo", "squeue"
NODES = "first", "second"
SEARCHED = os.environ["PATH"] + ":/usr/sbin:/sbin"
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=20
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[0]} CPUs=4 RealMemory=4000
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Cluster:
    """A controller and two nodes, which both are this machine: ranks meet at the first one's name."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        host, ports = socket.gethostname(), [free_port() for _ in range(3)]
        self.nodes = NODES
        folder.chmod(0o755), folder.parent.chmod(0o755)  # munged wants its socket to be everybody's
        for part in "munge", "state", *(f"spool-{node}" for node in self.nodes):
            (folder / part).mkdir(mode=0o755)
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(host=host, port=ports[0], ports=ports[1:], nodes=self.nodes,
                                                      user=getpass.getuser(), folder=folder))
        self.environment = {**os.environ, "PATH": SEARCHED, "SLURM_CONF": str(configuration)}
        munge = folder / "munge"
        self.start("munged", "--foreground", "--force", f"--key-file={folder / 'key'}", f"--socket={munge / 'socket'}",
                   f"--pid-file={munge / 'pid'}", f"--log-file={munge / 'log'}", f"--seed-file={munge / 'seed'}")
        self.until((munge / "socket").exists, "munged")
        self.start("slurmctld", "-D")
        for node in self.nodes:
            self.start("slurmd", "-D", "-N", node)
        self.until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == "2", "two idle nodes")

    def start(self, *words):
        with open(self.folder / f"{words[0]}.output", "a") as output:
            self.processes.append(subprocess.Popen(words, env=self.environment, stdout=output, stderr=output))

    def run(self, *words):
        return subprocess.run(list(map(str, words)), env=self.environment, capture_output=True, text=True,
                              timeout=DEADLINE)

    def until(self, holds, what):
        end = time.monotonic() + DEADLINE
        while not holds():
            if time.monotonic() > end or any(process.poll() is not None for process in self.processes):
                logs = "".join(f"{log.name}: {log.read_text()[-800:]}\n" for log in self.folder.glob("*.log"))
                raise AssertionError(f"{what} did not come\n{logs}")
            time.sleep(0.1)

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait(DEADLINE)


class Slurm(ranks.Case):
    def setUp(self):
        super().setUp()
        missing = [program for program in PROGRAMS if shutil.which(program, path=SEARCHED) is None]
        self.assertFalse(missing, "install slurmctld, slurmd, slurm-client and munge")
        place = self.folder / "cluster"
        place.mkdir()
        self.cluster = Cluster(place)
        self.addCleanup(self.cluster.close)

    def srun(self, folder, settings, *options):
        return ["srun", "--nodes=2", "--ntasks-per-node=2", "--overlap", *options,
                *self.command(folder, "cpu", settings)]

    def queued(self, folder, settings):
        """A batch job with four ranks, and where it writes."""
        script = folder / "job.sh"
        words = " ".join(f"'{word}'" for word in self.srun(folder, settings, "--kill-on-bad-exit"))
        script.write_text(f"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2 --requeue --open-mode=append\n{words}\n"
                          'echo "ended with $?"\n')
        done = self.cluster.run("sbatch", "--parsable", "-o", folder / "output", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), folder / "output"

    def until_it_has(self, folder, name):
        file = folder / "out" / name
        self.cluster.until(lambda: file.exists() and file.stat().st_size > 0, name)

    def until_it_ends(self, job):
        self.cluster.until(lambda: not self.cluster.run("squeue", "-h", "-j", job).stdout.strip(), f"job {job}'s end")

    def test_two_nodes_have_the_bits_of_ranks_by_hand(self):
        here, folder = self.train(4), self.fresh_folder()
        done = self.cluster.run(*self.srun(folder, {}))
        self.assertEqual(done.returncode, 0, done.stderr)
        there = Ended(folder, [0] * 4, [done.stderr])
        self.assertEqual(there.steps(), here.steps())
        self.assertEqual(there.results["weights"], here.results["weights"])

    def test_two_jobs_do_not_meet(self):
        folders = [self.fresh_folder() for _ in range(2)]
        jobs = [self.queued(folder, {"train.seed": seed}) for seed, folder in enumerate(folders)]
        for job, _ in jobs:
            self.until_it_ends(job)
        for seed, (folder, (_, output)) in enumerate(zip(folders, jobs)):
            self.assertIn("ended with 0", output.read_text())
            alone = self.train(4, **{"train.seed": seed})
            self.assertEqual(Ended(folder, [0] * 4, []).results["weights"], alone.results["weights"])

    def test_a_job_that_is_cancelled_leaves_a_checkpoint_that_goes_on_to_the_bit(self):
        steps, folder = 400, self.fresh_folder()
        settings = {"train.steps": steps, "model.layers": 1}
        job, output = self.queued(folder, settings)
        self.until_it_has(folder, "losses.txt")
        self.cluster.run("scancel", job)
        self.until_it_ends(job)
        self.until_it_has(folder, "checkpoint.safetensors")
        self.assertIn("interrupted by SIGTERM after step", output.read_text())
        again = self.cluster.run(*self.srun(folder, settings), "--resume", folder / "out")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assert_is_whole(Ended(folder, [0] * 4, [again.stderr]), settings)

    def assert_is_whole(self, done, settings):
        whole = self.train(4, **settings)
        self.assertEqual(done.steps(), whole.steps(), "each step once")
        self.assertEqual(done.results["weights"], whole.results["weights"])

    def test_a_job_that_is_queued_again_goes_on_by_itself(self):
        """The command line is the same, and an earlier run's checkpoint in the folder is not taken for its own."""
        steps, folder = 400, self.fresh_folder()
        settings = {"train.steps": steps, "model.layers": 1}
        (folder / "out").mkdir()
        saved = folder / "out" / "checkpoint.safetensors"
        saved.write_text("of another run")
        job, output = self.queued(folder, settings)
        self.until_it_has(folder, "losses.txt")
        self.assertEqual(self.cluster.run("scontrol", "requeue", job).returncode, 0)
        self.until_it_has(folder, "checkpoint.safetensors")
        self.cluster.until(lambda: self.cluster.run("squeue", "-h", "-j", job, "-o", "%t").stdout.strip() == "PD",
                           "the job in the queue")
        self.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # else it waits for two minutes
        self.until_it_ends(job)
        self.assertEqual(pathlib.Path(f"{saved}.of-an-earlier-run").read_text(), "of another run")
        self.assertIn("ended with 0", output.read_text())
        done = Ended(folder, [0] * 4, [])
        self.assertLess(done.results["steps"], steps, "it went on")
        self.assert_is_whole(done, settings)

    def test_a_rank_that_dies_ends_the_step_without_slurms_help(self):
        folder = self.fresh_folder()
        settings = {"train.steps": 100000, "run.ranks_bound": 5, "run.ranks_beat": 0.2}
        step = subprocess.Popen(self.srun(folder, settings, "--no-kill", "--kill-on-bad-exit=0"), text=True,
                                env=self.cluster.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.until_it_has(folder, "losses.txt")
        os.kill(self.process_of(folder, 3), signal.SIGKILL)
        errors = step.communicate(timeout=DEADLINE)[1]
        self.assertNotEqual(step.returncode, 0)
        self.assertRegex(errors, "incident [0-9a-f]{12}: rank 3 died")
        numbers = {json.loads((folder / f"results{f'.rank-{rank}' if rank else ''}.json").read_text())["incident"]
                   ["number"] for rank in range(3)}
        self.assertEqual(len(numbers), 1, numbers)

    def process_of(self, folder, rank):
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words, environment = ((process / name).read_bytes().decode() for name in ("cmdline", "environ"))
            except OSError:
                continue  # it has ended, or is not ours
            if words.startswith(str(TRAINER)) and str(folder) in words and \
                    re.search(rf"(^|\0)SLURM_PROCID={rank}\0", environment):
                return int(process.name)
        raise AssertionError(f"rank {rank} is not there")


def with_names():
    """Starts this program again where /etc/hosts has the nodes' names, for it and what it starts alone."""
    if os.environ.get("SPILLWAY_TEST_HOSTS"):
        return
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.write(pathlib.Path("/etc/hosts").read_text() + "".join(f"127.0.0.1 {node}\n" for node in NODES))
        hosts.flush()
        words = [sys.executable, __file__, str(ranks.BUILD), str(ranks.CORPUS), *sys.argv[1:]]
        mounted = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts.name]
        sys.exit(subprocess.run([*mounted, *words], env={**os.environ, "SPILLWAY_TEST_HOSTS": "yes"}).returncode)


if __name__ == "__main__":
    with_names()
    unittest.main()
