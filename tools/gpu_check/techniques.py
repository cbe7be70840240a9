#!/usr/bin/env python3
"""Every technique of the trainer on the card: bytes, tokens a second, utilization, and whether its promise holds.

A GPT-2 of 1.1 billion parameters in bf16 mixed precision, and PyTorch eager with the same model, text and batch beside
it. The estimate of each run is compared with its measured peak. What docs/techniques.md calls bit exact is also run on
a small model with dropout and deterministic kernels, and has to have the plain run's bits.
"""
import json
import math
import sys

from .machine import CORPUS, PYTHON, ROOT, require
from .part import Group, Outcome, Part

sys.path.insert(0, str(ROOT / "benchmarks/trainer"))
from techniques import TECHNIQUES  # noqa: E402

LARGE = {"layers": 20, "width": 2048, "heads": 16, "context": 1024, "vocabulary": 50304, "batch": 8, "micro_batch": 4,
         "steps": 6}
# What a simulated card computes in a second, on a processor.
SMALL = {"layers": 4, "width": 64, "heads": 2, "context": 32, "vocabulary": 256, "batch": 4, "micro_batch": 4,
         "steps": 4}
EXACT = {"recompute every block", "recompute MLPs", "recompute attentions", "recompute in segments of 3",
         "optimizer's states on the host"}
MOST_OFF = 0.05  # of an estimate
MOST_LOSS = math.log(LARGE["vocabulary"]) + 2  # of a model that has learned nothing, and some room
PRECISION = "train.precision="
HEADER = ["", "| technique | most bytes alive, MiB | of plain | estimate off by | tokens a second | of plain | "
          "TFLOP/s | of a large product's | bits of plain |", "|---|---|---|---|---|---|---|---|---|"]


def settings_of(name, shape):
    settings = TECHNIQUES[name]
    mixed = [] if any(each.startswith(PRECISION) for each in settings) else [PRECISION + "bf16-mixed"]
    model = [f"model.{key}={shape[key]}" for key in ("layers", "width", "heads", "context", "vocabulary")]
    return [*model, f"train.batch={shape['batch']}", f"plan.micro_batch={shape['micro_batch']}",
            f"train.steps={shape['steps']}", "train.warmup=2", "evaluation.windows=1", "plan.evaluation_batch=1",
            *mixed, *settings]


def train(machine, folder, settings):
    """The run's report and its table, both as JSON."""
    options = [word for setting in settings for word in ("--set", setting)]
    result = machine.train(folder, *options)
    return json.loads((folder / "run/report.json").read_text()), result


def measured(machine, folder, name, shape):
    report, result = train(machine, folder, settings_of(name, shape))
    require(result["recoveries"] == [], "it ran out of memory on the way")
    plan = report["plans"][-1]
    require(plan["time"]["achieved_seconds"] is not None, "no step went through undisturbed")
    require(0 < result["training_loss"] < MOST_LOSS, f"its loss is {result['training_loss']}")
    estimate, peak = plan["estimate"]["device_peak_bytes"][0], result["devices"][0]["peak_live"]
    # A simulated card that computes on a processor needs no workspace of cuBLAS, which the estimate counts.
    off = None if machine.simulated else estimate / peak - 1
    return {"peak": peak, "off": off, "seconds": plan["time"]["achieved_seconds"],
            "operations": plan["time"]["operations"], "flops": report["rates"]["flops"],
            "rates": report["rates"]["measured"]}


def eager(machine, folder, shape, plain):
    result = folder / "eager.json"
    machine.run([PYTHON, ROOT / "tools/gpu_check/programs/eager_gpt.py", json.dumps(shape), CORPUS, result])
    return {**plain, **json.loads(result.read_text()), "off": None}


def keeps_bits(machine, folder, name):
    """The weights at the end, of a small model, with the technique and without."""
    shape = dict(SMALL, micro_batch=2)
    more = ["model.dropout=0.1", "run.deterministic=true"]
    weights = [train(machine, folder, [*settings_of(each, shape), *more])[1]["weights"] for each in (name, "plain")]
    require(weights[0] == weights[1], f"its weights {weights[0]} are not the plain run's {weights[1]}")
    return "yes"


def row(name, found, plain, shape, bits):
    tokens = shape["batch"] * shape["context"] / found["seconds"]
    rate = plain["operations"] / found["seconds"]  # of the model: what is computed again earns nothing
    off = "" if found["off"] is None else f"{found['off']:+.1%}"
    share = f"{rate / found['flops']:.2f}" if found["rates"] else "not measured"
    return (f"| {name} | {found['peak'] / 2**20:.1f} | {found['peak'] / plain['peak']:.2f} | {off} | {tokens:.0f} | "
            f"{plain['seconds'] / found['seconds']:.2f} | {rate / 1e12:.3g} | {share} | {bits} |")


def shape_for(machine):
    return SMALL if machine.simulated else LARGE


def look_at_plain(setting):
    found = measured(setting.machine, setting.folder, "plain", shape_for(setting.machine))
    require(abs(found["off"] or 0) <= MOST_OFF, f"the estimate is off by {found['off'] or 0:+.1%}")
    return Outcome([row("plain", found, found, shape_for(setting.machine), "")], data=found)


def plain_of(setting):
    found = setting.data(PLAIN.identity)
    require(found and "seconds" in found, "there is no plain run to compare with")
    return found


def look_at(name):
    def run(setting):
        shape, plain = shape_for(setting.machine), plain_of(setting)
        found = measured(setting.machine, setting.folder, name, shape)
        require(abs(found["off"] or 0) <= MOST_OFF, f"the estimate is off by {found['off'] or 0:+.1%}")
        bits = keeps_bits(setting.machine, setting.folder, name) if name in EXACT else ""
        return Outcome([row(name, found, plain, shape, bits)], data=found)
    return run


def look_at_eager(setting):
    shape, plain = shape_for(setting.machine), plain_of(setting)
    found = eager(setting.machine, setting.folder, shape, plain)
    return Outcome([row("PyTorch eager, bf16 autocast", found, plain, shape, "")], data=found)


GROUP = Group("techniques", HEADER)


def part(name, run):
    return Part(GROUP.name, name, 45, run, lambda text: f"| {name} | FAIL: {text} | | | | | | | |")


PLAIN = part("plain", look_at_plain)


def parts(names):
    """The plain run, those techniques or all, and PyTorch alone."""
    return [PLAIN, *(part(name, look_at(name)) for name in names or TECHNIQUES if name != "plain"),
            part("PyTorch eager", look_at_eager)]
