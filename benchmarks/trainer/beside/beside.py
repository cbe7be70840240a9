#!/usr/bin/env python3
"""beside.py BUILD --corpus TEXT [--width N ...]: the trainer beside DeepSpeed and PyTorch's FSDP2, all with offload.

The same GPT-2 is trained on a simulated card by each, in bfloat16 with 32-bit masters, every block recomputed. Prints a
table in Markdown. On the card: the most bytes alive, of one run in null mode with the profiles `typical` and
`timed-kernels`. Copied to and from the card, read from and written to the disk, virtual milliseconds: of a step, as
the difference of a run with more and one with fewer. On the host: the most anonymous memory of the process, beyond that
of the same program with a tiny model, of a run whose values are computed, on few tokens (in null mode what is copied to
the host takes no page); page-locked: as the simulated driver counts it. The virtual clock does not see what a processor
computes nor what a disk takes: an update on the host is free there. `tools/setup --beside` installs the others.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".deps-beside"
FEW, MORE = 3, 6  # steps
TINY = {"layers": 1, "width": 64, "context": 16, "batch": 1}
HOST = ['plan.gradients="host"', 'plan.optimizer="host"']
WAYS = [  # name, who, its way or its settings
    ("PyTorch, autocast, no offload", "others", "torch"),
    ("Spillway, no offload", "ours", []),
    ("DeepSpeed ZeRO-Offload (stage 2)", "others", "zero-offload"),
    ("Spillway, gradients and states on the host", "ours", HOST),
    ("PyTorch FSDP2, CPUOffloadPolicy", "others", "fsdp2"),
    ("DeepSpeed ZeRO-Infinity, all on the host", "others", "zero-infinity-cpu"),
    ("Spillway, all on the host", "ours", [*HOST, 'plan.parameters="host"']),
    ("Spillway, all on the host, updated there", "ours",
     [*HOST, 'plan.parameters="host"', 'plan.update="just_in_time"', 'plan.update_on="host"']),
    ("DeepSpeed ZeRO-Infinity, weights and states on NVMe", "others", "zero-infinity-nvme"),
    ("Spillway, states on NVMe, the rest on the host", "ours",
     ['plan.gradients="host"', 'plan.optimizer="nvme"', 'plan.parameters="host"']),
]


def our_command(build, settings, sizes, steps, folder, corpus):
    chosen = [f"model.layers={sizes['layers']}", f"model.width={sizes['width']}", f"model.heads={sizes['width'] // 64}",
              f"model.context={sizes['context']}", f"train.batch={sizes['batch']}", f"train.steps={steps}",
              "train.precision=bf16-mixed", "train.warmup=1", "evaluation.windows=1", "plan.evaluation_batch=1",
              'plan.recompute="all"', "run.threads=1", f"run.out={folder}", f"data.corpus={corpus}", *settings]
    command = [build / "bin" / "spillway-train", "--config", ROOT / "configs" / "tiny.toml", "--device", "cuda",
               "--quiet", "--json", folder / "result.json"]
    for each in chosen:
        command += ["--set", each]
    return command


def their_command(way, sizes, steps, folder):
    options = [word for name, value in {**sizes, "steps": steps}.items() for word in (f"--{name}", str(value))]
    return [ENVIRONMENT / "bin" / "python", HERE / "others.py", way, folder / "result.json", *options]


def environment(folder):
    """With what DeepSpeed compiles its C++ by, when it is first used: see tools/setup."""
    there = ENVIRONMENT.resolve()
    libraries = f"{there}/libaio/usr/lib/x86_64-linux-gnu"
    return {**os.environ, "SPILLWAY_SIM_REPORT": str(folder / "simulated.json"), "CUDA_HOME": f"{there}/cuda",
            "CPATH": f"{there}/libaio/usr/include", "LIBRARY_PATH": libraries, "LD_LIBRARY_PATH": libraries,
            "CFLAGS": f"-I{there}/libaio/usr/include", "LDFLAGS": f"-L{libraries}", "PYTHONWARNINGS": "ignore",
            "TORCH_EXTENSIONS_DIR": f"{there}/extensions", "PATH": f"{there}/bin:{os.environ['PATH']}"}


def anonymous_bytes(process):
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)
    except OSError:  # it has ended
        return 0


def run(options, way, sizes, steps, simulate):
    """What one training leaves: its result, the simulator's counters, host and disk bytes."""
    _, who, what = way
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        folder = pathlib.Path(name)
        command = (our_command(options.build, what, sizes, steps, folder, options.corpus) if who == "ours"
                   else their_command(what, sizes, steps, folder))
        with open(folder / "output", "w+") as output:
            child = subprocess.Popen([options.build / "bin" / "spillway", "simulate", *simulate, "--", *command],
                                     stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment(folder))
            host, ended = 0, (0, 0, None)
            while ended[0] == 0:
                host = max(host, anonymous_bytes(child.pid))
                time.sleep(0.005)
                ended = os.wait4(child.pid, os.WNOHANG)
            output.seek(0)
            said = output.read()
        if ended[1] != 0:
            sys.exit(f"{' '.join(map(str, command))}: {said[-3000:]}")
        result = json.loads((folder / "result.json").read_text())
        counters = json.loads((folder / "simulated.json").read_text())["counters"]
    peak = result["peak"] if who == "others" else result["devices"][0]["peak_live"]
    return {"card": peak, "host": host, "read": ended[2].ru_inblock * 512, "written": ended[2].ru_oublock * 512,
            **counters}


def measure(options, way, sizes):
    timed = ["--capacity", "1024GiB", "--profile", "typical,timed-kernels"]
    few, more = (run(options, way, sizes, steps, timed) for steps in (FEW, MORE))
    computed = ["--capacity", "1024GiB", "--values", "compute"]
    short = {**sizes, "context": 64, "batch": 1}
    large, tiny = run(options, way, short, 2, computed), run(options, way, TINY, 2, computed)

    def of_step(name):
        return max(0, more[name] - few[name]) / (MORE - FEW)
    return {"card": more["card"], "host": large["host"] - tiny["host"], "locked": large["pinned_peak_bytes"],
            "to_card": of_step("to_device_bytes"), "to_host": of_step("to_host_bytes"),
            "read": of_step("read"), "written": of_step("written"), "ms": of_step("virtual_ns") / 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--disk", type=pathlib.Path, help="a folder on the disk for states (default: the system's)")
    parser.add_argument("--only", nargs="*", help="rows with these words in their names")
    for name, size in (("layers", 8), ("width", 1024), ("context", 1024), ("batch", 4)):
        parser.add_argument(f"--{name}", type=int, default=size)
    options = parser.parse_args()
    options.build, options.corpus = options.build.resolve(), options.corpus.resolve()
    if not (ENVIRONMENT / "bin" / "python").exists():
        parser.error("DeepSpeed is not installed: tools/setup --beside does it")
    sizes = {name: getattr(options, name) for name in TINY}
    print("| training | on the card | on the host | page-locked | to the card | to the host | read | written | ms |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for way in WAYS:
        if options.only and not any(word in way[0] for word in options.only):
            continue
        row = measure(options, way, sizes)
        cells = [f"{row[name] / 2**20:.0f}" for name in list(row)[:-1]]
        print(f"| {way[0]} | {' | '.join(cells)} | {row['ms']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
