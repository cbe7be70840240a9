#!/usr/bin/env python3
"""Whether Spillway's allocator gives a program the values that PyTorch's own gives it, with room and without."""
import json

from ..machine import BUILD, MIB, PYTHON, require, require_same_training
from ..part import check

PAGE = 2 * MIB


def core_on_the_driver(machine, folder):
    driver = {"SPILLWAY_DRIVER": str(BUILD / "lib/sim/libcuda.so.1") if machine.simulated else "libcuda.so.1"}
    machine.run([BUILD / "bin/test_strategies_core"], **driver)
    return "the C interface's test program passes"


# Block sizes differ between allocators, and with them memory_allocated; what was requested does not
# (docs/decisions.md, "Parity compares requested bytes").
PYTORCH_PROGRAM = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(2)
for step in range(5):
    x = torch.randn(64, 256, device="cpu").cuda()
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.item().hex(), torch.cuda.memory_stats()["requested_bytes.all.current"])
"""


def allocator_in_pytorch(machine, folder):
    said = {}
    for name, install in (("native", ""), ("spillway", "import spillway; spillway.install()\n")):
        script = folder / f"program_{name}.py"
        script.write_text(install + PYTORCH_PROGRAM)
        said[name] = machine.run([PYTHON, script]).split()
    require(said["native"] == said["spillway"],
            f"losses or requested bytes differ: {said['native']} and {said['spillway']}")
    return f"{len(said['native']) // 2} steps: losses and requested bytes equal the native allocator's"


# What PyTorch takes for cuBLAS while it computes depends on the card: 8 MiB, and 32 MiB from sm_90 on. The program ends
# at once, because Python may be gone before PyTorch's thread of backward passes has cleaned up.
SMALL_STEP_PROGRAM = """
import os, torch, spillway
spillway.install()
layer = torch.nn.Linear(1024, 256).cuda()
layer(torch.randn(64, 1024, device="cuda", requires_grad=True)).sum().backward()
torch.cuda.synchronize()
print(torch.cuda.max_memory_allocated(), flush=True)
os._exit(0)
"""
BEYOND_A_SMALL_STEP = 18 * MIB  # holds one batch of examples/prefetch.py and its gradients, and no second batch


def rescue_in_place(machine, folder):
    trace, script = folder / "prefetch.spill", folder / "small_step.py"
    script.write_text(SMALL_STEP_PROGRAM)
    limit = BEYOND_A_SMALL_STEP + -(-int(machine.run([PYTHON, script])) // PAGE) * PAGE
    machine.run([PYTHON, "examples/prefetch.py"], SPILLWAY_LIMIT=str(limit), SPILLWAY_TRACE=str(trace))
    run = machine.report(trace)
    require(run["failures"] > 0 and run["gave_up"] == 0, f"{run['failures']} failures, {run['gave_up']} lost")
    microseconds = sum(entry["microseconds"] for entry in run["strategies"].values())
    return f"{run['rescued']} of {run['failures']} failures served in place in {microseconds} us"


def trainer_native(machine, folder):
    ours = machine.train(folder)
    native = machine.train(folder, "--set", 'run.allocator="native"')
    require_same_training(ours, native, "the native allocator's run")
    return f"weights {ours['weights']} with either allocator"


def workspace_of(report):
    """Bytes that the trainer keeps for the library of products, whatever the plan: no limit may go below."""
    items = report["plans"][-1]["estimate"]["items"]
    return sum(item["bytes"] for item in items if item["name"].startswith("workspace"))


def trainer_limited(machine, folder):
    room = machine.train(folder)
    workspace = workspace_of(json.loads((folder / "run/report.json").read_text()))
    movable = room["devices"][0]["peak_live"] - workspace
    limit = -(-(workspace + movable * 3 // 4) // PAGE) * PAGE
    limited = machine.train(folder, "--limit", str(limit), "--set", "recovery.floor=bit_exact")
    device = limited["devices"][0]
    require(device["failures"] > 0, "the limited run met no failure")
    require_same_training(limited, room, "the run with room")
    return f"limit {limit / MIB:.0f} MiB: {device['failures']} failures survived, weights bitwise equal"


CHECKS = [
    check("core on the driver", 3, core_on_the_driver),
    check("allocator in PyTorch", 40, allocator_in_pytorch),
    check("rescue in place", 40, rescue_in_place),
]
TRAINER_CHECKS = [
    check("trainer, either allocator", 20, trainer_native),
    check("trainer under a limit", 20, trainer_limited),
]
