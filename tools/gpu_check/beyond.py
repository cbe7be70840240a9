#!/usr/bin/env python3
"""What lies beyond the card: a GPT of 1.1 billion parameters with its parts on the host and on a disk, how much of the
copies is hidden, and the disk beside fio. Each row has a bar, what was measured, and whether the bar is met.

On the simulator the models are small. Bits and bytes are compared there too; times are those of its virtual clock, or
are left out where it has none.
"""
import json
import shutil

from .machine import BUILD, MIB, PYTHON, ROOT, CheckFailed, require
from .part import Group, Outcome, Part
from .techniques import LARGE, SMALL, settings_of, train

GROUP = Group("beyond the card", ["", "| beyond the card | bar | measured | met |", "|---|---|---|---|"])
BITS = "the plain run's bits"
HOST, DISK = ["plan.optimizer=host"], ["plan.optimizer=nvme"]
ACTIVATIONS_ON_DISK = ["plan.offload_to=nvme"]
LAYERS_ON_HOST = ["plan.parameters=host", "plan.gradients=host"]
JUST_IN_TIME = "plan.update=just_in_time"
# What goes where, the most bytes alive and the most time, both of the plain run; none: no bar. Weights and all
# activations of micro-batches this small take the link longer than the passes.
PLACES = {
    "gradients and states on the host": ([*HOST, "plan.gradients=host"], 0.41, 1.2),
    "parameters, gradients and states on the host": ([*HOST, *LAYERS_ON_HOST], 0.41, None),
    "the same, states coming beside the forward": (
        [*HOST, *LAYERS_ON_HOST, JUST_IN_TIME, "plan.update_slots={slots}"], 0.41, None),
    "the same, updated by the host": ([*HOST, *LAYERS_ON_HOST, JUST_IN_TIME, "plan.update_on=host"], 0.41, None),
    "states on NVMe, parameters and gradients on the host": ([*DISK, *LAYERS_ON_HOST], 0.41, None),
    "parameters, gradients and states on NVMe": ([*DISK, "plan.parameters=nvme", "plan.gradients=nvme"], 0.41, None),
    "activations on the host": (["plan.offload=all"], 1.0, None),
    "activations on NVMe": ([*ACTIVATIONS_ON_DISK, "plan.offload=all"], 1.0, None),
    "every fourth layer's activations on the host": (["plan.offload={fourth}"], 1.0, 1.1),
}
TIMED = ["--capacity", "1024GiB", "--values", "zeros", "--profile", "typical,timed-kernels"]
LEAST_HIDDEN, LEAST_OF_FIO = 0.9, 0.9


def judged(name, bar, measured, met, data=None):
    return Outcome([f"| {name} | {bar} | {measured} | {'yes' if met else 'NO'} |"], failed=not met, data=data)


def not_run(name, bar, why, measured=""):
    return Outcome([f"| {name} | {bar} | {measured} | not run: {why} |"], data={"not run": why})


def part(name, seconds, run):
    return Part(GROUP.name, name, seconds, run, lambda text: f"| {name} | | FAIL: {text} | NO |")


def shape_of(machine):
    return dict(SMALL, steps=2, micro_batch=2) if machine.simulated else dict(LARGE, steps=3, batch=128)


def scratch(setting):
    """A folder on the disk that keeps what is found; temporary files may lie in memory."""
    folder = setting.options.folder / "scratch"
    folder.mkdir(exist_ok=True)
    return folder


def trained(setting, settings):
    """Weights, the most bytes alive, seconds of a step."""
    disk = scratch(setting)
    try:
        report, result = train(setting.machine, setting.folder, [
            *settings_of("plain", shape_of(setting.machine)), "model.dropout=0.1", "run.deterministic=true",
            f"run.nvme={disk}", "run.nvme_least=0", *settings])
    finally:
        shutil.rmtree(disk)
    require(result["recoveries"] == [], "it ran out of memory on the way")
    return {"weights": result["weights"], "losses": result["losses"], "peak": result["devices"][0]["peak_live"],
            "seconds": report["plans"][-1]["time"]["achieved_seconds"]}


def look_at_plain(setting):
    found = trained(setting, [])
    require(found["seconds"], "no step went through undisturbed")
    text = f"{found['peak'] / MIB:.0f} MiB alive, {found['seconds']:.2f} s a step"
    return Outcome([f"| plain | | {text} | |"], data=found)


PLAIN = part("plain", 40, look_at_plain)


def same_bits(run, plain):
    """Of the weights at the end, and of every step's loss and gradient norm."""
    return all(run[key] == plain[key] for key in ("weights", "losses"))


def bar_of(most_bytes, most_time):
    parts = [BITS, most_bytes and f"at most {most_bytes} of its bytes", most_time and f"{most_time} of its time"]
    return ", ".join(filter(None, parts))


def look_at_place(name):
    settings, most_bytes, most_time = PLACES[name]

    def run(setting):
        shape = shape_of(setting.machine)
        fourth = [*range(0, shape["layers"] - 1, 4)]
        slots = 10 * shape["width"]**2 // 2**18 + 5  # tiles of an MLP, and a quarter more
        bar, plain, on_card = bar_of(most_bytes, most_time), setting.data(PLAIN.identity), not setting.machine.simulated
        require(plain and "weights" in plain, "there is no plain run to compare with")
        try:
            found = trained(setting, [each.format(fourth=fourth, slots=slots) for each in settings])
        except CheckFailed as error:
            if " must be " in str(error):
                return not_run(name, bar, f"this trainer refuses it ({error})".replace("|", "/"))
            raise
        same = same_bits(found, plain)
        if not same and not same_bits(trained(setting, []), plain):
            return not_run(name, bar, "two plain runs have different bits on this card")
        bytes_of, time_of = found["peak"] / plain["peak"], found["seconds"] / plain["seconds"]
        text = f"{'equal' if same else 'other'} bits, {bytes_of:.2f} of the bytes"
        # A small model's workspaces and head are most of its bytes, and a processor's times say nothing of a card.
        text += f", {time_of:.2f} of the time" if on_card else "; its bytes and time are judged on a card alone"
        within = not on_card or (bytes_of <= (most_bytes or 9) and time_of <= (most_time or 1e9))
        return judged(name, bar, text, same and within, found)
    return run


# Layers of which the passes hide the copies: of bf16-mixed weights have 2 bytes, gradients 4.
WIDE = {"layers": 12, "width": 2048, "heads": 16, "context": 1024, "vocabulary": 50304, "rows": 16}
NARROW = {"layers": 8, "width": 512, "heads": 8, "context": 256, "vocabulary": 256, "rows": 64}
FEW, MANY, OVERLAP_STEPS = 2, 6, 3
NUMBER_BYTES = (2, 4)


def settings_for(shape, count):
    model = [f"model.{key}={shape[key]}" for key in ("layers", "width", "heads", "context", "vocabulary")]
    return [*model, "train.precision=bf16-mixed", f"plan.micro_batch={shape['rows']}",
            f"train.batch={shape['rows'] * count}", f"train.steps={OVERLAP_STEPS}", "train.warmup=1",
            "evaluation.windows=1", "plan.evaluation_batch=1"]


def virtual_seconds(setting, settings):
    """Of a whole run, on the virtual clock of a simulated card."""
    report = setting.folder / "simulator.json"
    options = [word for each in settings for word in ("--set", each)]
    setting.machine.beside(*TIMED).run(
        [BUILD / "bin/spillway-train", "--config", "configs/tiny.toml", "--device", "cuda", "--quiet", "--set",
         f"run.out={setting.folder / 'run'}", *options], SPILLWAY_SIM_REPORT=str(report))
    return json.loads(report.read_text())["counters"]["virtual_ns"] / 1e9


def micro_batch_seconds(setting, shape, settings):
    """Of what is in every micro-batch: the update is left out."""
    def step(count):
        chosen = [*settings_for(shape, count), *settings]
        if setting.machine.simulated:
            return virtual_seconds(setting, chosen) / OVERLAP_STEPS
        return train(setting.machine, setting.folder, chosen)[0]["plans"][-1]["time"]["achieved_seconds"]
    return (step(MANY) - step(FEW)) / (MANY - FEW)


def copied_bytes(shape):
    """To the card, and to the host: weights for the forward and the backward but for three parts of layers at each
    turn; gradients go and come."""
    layer, (weight, gradient) = 12 * shape["width"] ** 2, NUMBER_BYTES
    return (layer * (weight * (2 * shape["layers"] - 3) + gradient * shape["layers"]),
            layer * gradient * shape["layers"])


def link(setting):
    """Bytes a second of plain copies of page-locked memory, to the card and to the host, both at once."""
    if setting.machine.simulated:
        return 25e9, 25e9  # of the profile
    found = json.loads(setting.machine.run([PYTHON, ROOT / "tools/gpu_check/programs/link.py"]))
    return found["to_card"], found["to_host"]


def look_at_overlap(setting):
    name, bar = "copies of layers on the host", f"at least {LEAST_HIDDEN:.0%} of the shorter hidden"
    shape = NARROW if setting.machine.simulated else WIDE
    rates = link(setting)
    copies = max(size / rate for size, rate in zip(copied_bytes(shape), rates))
    alone = micro_batch_seconds(setting, shape, [])
    together = micro_batch_seconds(setting, shape, LAYERS_ON_HOST)
    hidden = (alone + copies - together) / min(alone, copies)
    text = (f"{1e3 * alone:.1f} ms of passes, {1e3 * copies:.1f} ms of plain copies of the same bytes at "
            f"{rates[0] / 1e9:.1f} and {rates[1] / 1e9:.1f} GB/s, together {1e3 * together:.1f} ms: "
            f"{hidden:.0%} hidden")
    return judged(name, bar, text, hidden >= LEAST_HIDDEN,
                  {"alone": alone, "copies": copies, "together": together, "rates": rates})


def look_at_disk(setting):
    name, bar = "NVMe reads and writes", f"at least {LEAST_OF_FIO} of fio's"
    mebibytes, disk = (64 if setting.machine.simulated else 2048), scratch(setting)
    try:
        if shutil.which("fio") is None:
            _, write, read = setting.machine.run([BUILD / "bin/bench_nvme", disk, mebibytes]).split()
            return not_run(name, bar, "there is no fio here", f"written {write} GB/s, read {read} GB/s")
        printed = setting.machine.run([PYTHON, ROOT / "benchmarks/nvme/beside_fio.py", BUILD, disk, "--mebibytes",
                                       mebibytes, "--pairs", 1 if setting.machine.simulated else 3])
    finally:
        shutil.rmtree(disk)
    found = json.loads(printed.splitlines()[-1])
    text = ", ".join(f"{mode} {each['store_gbs']:.2f} GB/s, {each['ratio']:.2f} of fio's"
                     for mode, each in found.items())
    met = all(each["ratio"] >= LEAST_OF_FIO for each in found.values())
    if setting.machine.simulated and not met:  # few bytes, and a disk that others use
        return not_run(name, bar, "a rehearsal on few bytes decides nothing", text)
    return judged(name, bar, text, met, found)


PARTS = [PLAIN, *(part(name, 90 if "NVMe" in name else 40, look_at_place(name)) for name in PLACES),
         part("copies of layers on the host", 70, look_at_overlap), part("NVMe reads and writes", 60, look_at_disk)]
