#!/usr/bin/env python3
"""What `spillway run` does for programs on the card: the trials of `spillway doctor`, programs that die without it,
memory that is moved to the host, how fast, and what others say of it."""
import json

from gpu_check.machine import BUILD, ROOT, require

SPILLWAY = BUILD / "bin/spillway"
MIB = 1 << 20
BANDWIDTH = 0.9  # of a plain copy's


def under_run(*options):
    return [SPILLWAY, "run", "--quiet", *options, "--"]


def machine_trials(machine):
    """Name, state and finding of every trial of spillway doctor, also where it says that run can not work."""
    found = json.loads(machine.start([SPILLWAY, "doctor", "--json"], {}).stdout)
    for trial in found["trials"]:
        yield trial["name"], trial["state"], trial["found"]


def native_library_short_of_memory(machine, folder):
    """A cache of the program's own is given up when the driver is short; natively the call fails."""
    program = BUILD / "bin/example_drop_cache"
    machine.must_fail([program], "out of memory")
    printed = machine.run([*under_run("--trace", folder / "drop.spill"), program])
    return printed.strip().splitlines()[-1]


def measured(machine, folder, limit, program):
    """The program's peaks with PyTorch's own allocator, and whether it fits in what that may reserve."""
    result = folder / "measured.json"
    machine.run([machine.python, ROOT / "tools/gpu_check/measure.py", result, limit, *program[1:]])
    return json.loads(result.read_text())


def training_beyond_its_limit(machine, folder):
    """GPT-2 in a limit in which PyTorch's own allocator fails, with the values of a run that has room."""
    program = [machine.python, ROOT / "tests/programs/values_gpt2.py", "cuda", "4", "640"]
    room = machine.run(program)
    limit = measured(machine, folder, 0, program)["allocated"] * 7 // 10
    require(not measured(machine, folder, limit, program)["fits"], "PyTorch's own allocator fits in the limit too")
    limited = machine.run([*under_run("--mode", "replace", "--limit", str(limit), "--max-slowdown", "none",
                                      "--trace", folder / "gpt2.spill"), *program])
    require(limited == room, "losses or weights differ from the run with room")
    report = json.loads(machine.run([SPILLWAY, "report", "--json", folder / "gpt2.spill"]))["run"]
    spills = report["strategies"].get("spill_to_host", {}).get("gained_bytes", 0)
    require(spills > 0, "nothing was moved to the host")
    return (f"limit {limit / MIB:.0f} MiB, 0.7 of the peak: values bitwise those of a run with room; "
            f"{report['rescued']} failures served, {spills / MIB:.0f} MiB moved")


def spilled_memory(machine, folder):
    limit = "1GiB" if machine.simulated else "8GiB"
    said = json.loads(machine.run([*under_run("--mode", "replace", "--limit", limit, "--max-slowdown", "none",
                                              "--host-budget", limit, "--trace", folder / "moved.spill"),
                                   machine.python, ROOT / "tools/gpu_check/spilled_memory.py"]))
    wrong = {way: text for way, text in {**said["uses"], "NCCL": said["nccl"]}.items() if text != "right"}
    require(not wrong, "; ".join(f"{way}: {text}" for way, text in wrong.items()))
    ratio = said["plain_us"] / said["spill_us"]
    moved = f"{said['spilled'] / MIB:.0f} MiB moved"
    require(machine.simulated or ratio >= BANDWIDTH,
            f"{moved} at {ratio:.2f} of a plain copy's bandwidth, bar {BANDWIDTH}")
    speed = "time is not simulated" if machine.simulated else f"{ratio:.2f} of a plain copy's bandwidth"
    attributes = said["attributes"]
    return (f"{moved}, {speed}; kernels, copies, memset and NCCL right; driver: memory type {attributes['type']}, "
            f"device {attributes['device']}, managed {attributes['managed']}; sharing: "
            f"{said['sharing']}")


CHECKS = [
    ("another library's call", native_library_short_of_memory),
    ("training beyond its limit", training_beyond_its_limit),
    ("memory moved to the host", spilled_memory),
]
