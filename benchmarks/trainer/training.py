"""Runs of spillway-train that the scripts of this folder measure, and their command lines."""
import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMED = ("--profile", "typical,timed-kernels")  # of `spillway simulate`: calls, copies and operators take virtual time


def command_line(description):
    """A parser of BUILD and --corpus; read it by `options_of`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    return parser


def options_of(parser):
    """From now on SIGTERM ends the program as an exception does: folders of some GB go on the way."""
    options = parser.parse_args()
    options.build, options.corpus = options.build.resolve(), options.corpus.resolve()
    if not (options.build / "bin" / "spillway-train").exists():
        parser.error(f"there is no build in '{options.build}': tools/test --quick makes one in build")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return options


@dataclasses.dataclass
class Trained:
    """What a run has left, until the block of `trained` ends."""
    folder: pathlib.Path
    output: str

    @property
    def result(self):
        return json.loads((self.folder / "result.json").read_text())

    @property
    def counters(self):
        """The simulator's, of the first rank."""
        return json.loads((self.folder / "simulated.0").read_text())["counters"]


@contextlib.contextmanager
def trained(build, corpus, settings, simulate, ranks=None, more=""):
    """Trains with `settings` ("key=value") beside those of configs/tiny.toml and the lines `more`, in a folder that is
    removed when the block ends. `simulate`: options of `spillway simulate`; None trains on the processor. `ranks`: how
    many torchrun starts; None leaves it out. If the training fails, the program ends with its words.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = folder / "config.toml"
        config.write_text((ROOT / "configs" / "tiny.toml").read_text() + more)
        settings = [*settings, f"run.out={folder}", f"data.corpus={corpus}"]
        command = [build / "bin" / "spillway-train", "--config", config, "--quiet", "--json", folder / "result.json",
                   "--device", "cpu" if simulate is None else "cuda",
                   *itertools.chain.from_iterable(("--set", each) for each in settings)]
        if simulate is not None:
            reports = f'SPILLWAY_SIM_REPORT={folder}/simulated.${{RANK:-0}} exec "$@"'
            command = [build / "bin" / "spillway", "simulate", *simulate, "--", *(launch(ranks) if ranks else ()),
                       "bash", "-c", reports, "bash", *command]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"} if ranks else os.environ
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT, env=environment)
        if done.returncode != 0:
            causes = {line for line in done.stderr.splitlines() if line.startswith("spillway-train: ")}
            sys.exit("\n".join(sorted(causes)) or done.stdout[-1500:] + done.stderr[-1500:])
        yield Trained(folder, done.stdout)


def launch(ranks):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}",
            "--no-python"]
