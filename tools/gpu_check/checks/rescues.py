#!/usr/bin/env python3
"""What `spillway run` does for programs on the card: the trials of `spillway doctor`, programs that die without it,
memory that is moved to the host, how fast, and what others say of it."""
import json

from ..machine import BUILD, LONGEST, MIB, ROOT, require
from ..part import Outcome, Part, check

SPILLWAY = BUILD / "bin/spillway"
MOVES = "moves under launches"
PROGRAMS = ROOT / "tools/gpu_check/programs"
SERVED = 1000  # failures of programs that launch while blocks move
BANDWIDTH = 0.9  # of a plain copy's, from the second spill on: the first one has its host memory made
LEAST_JUDGED = 64 * MIB  # that come back at once


def under_run(*options):
    return [SPILLWAY, "run", "--quiet", *options, "--"]


def machine_trials(setting):
    """Name, state and finding of every trial of spillway doctor, also where it says that run cannot work."""
    found = json.loads(setting.machine.start([SPILLWAY, "doctor", "--json"], {}).stdout)
    return Outcome([f"| {trial['name']} | {trial['state']} | {trial['found']} |" for trial in found["trials"]],
                   data=found)


def native_library_short_of_memory(machine, folder):
    """A cache of the program's own is given up when the driver is short; natively the call fails."""
    program = BUILD / "bin/example_drop_cache"
    machine.must_fail([program], "out of memory")
    printed = machine.run([*under_run("--trace", folder / "drop.spill"), program])
    return printed.strip().splitlines()[-1]


def measured(machine, folder, limit, program):
    """The program's peaks with PyTorch's own allocator, and whether it fits in what that may reserve."""
    result = folder / "measured.json"
    machine.run([machine.python, PROGRAMS / "measure.py", result, limit, *program[1:]])
    return json.loads(result.read_text())


def training_beyond_its_limit(machine, folder):
    """A GPT in a limit in which PyTorch's own allocator fails, with the values of a run that has room.

    PyTorch's limit counts what its allocator reserves; that of `spillway run` counts what libraries take too."""
    program = [machine.python, PROGRAMS / "values_gpt.py", "4", "640"]
    room = machine.run(program)
    limit = measured(machine, folder, 0, program)["allocated"] * 7 // 10
    require(not measured(machine, folder, limit, program)["fits"], "PyTorch's own allocator fits in the limit too")
    # Under a limit, because without one `context` has the driver's own part too.
    machine.run([*under_run("--mode", "replace", "--limit", str(20 * limit)), machine.python,
                 PROGRAMS / "spillway_memory.py", folder / "memory.json", *program[1:]])
    memory = json.loads((folder / "memory.json").read_text())
    whole = limit + memory["context"] + memory["pools"]
    limited = machine.run([*under_run("--mode", "replace", "--limit", str(whole), "--max-slowdown", "none",
                                      "--trace", folder / "gpt.spill"), *program])
    require(limited == room, "losses or weights differ from the run with room")
    report = machine.report(folder / "gpt.spill")
    spills = report["strategies"].get("spill_to_host", {}).get("gained_bytes", 0)
    require(spills > 0, f"nothing was moved to the host in {whole / MIB:.0f} MiB; {report['failures']} failures")
    return (f"limit {limit / MIB:.0f} MiB, 0.7 of the peak: values bitwise those of a run with room; "
            f"{report['rescued']} failures served, {spills / MIB:.0f} MiB moved")


def limit_of(machine):
    return "1GiB" if machine.simulated else "8GiB"


def under_limit(machine, program, *words, options=(), seconds=LONGEST, before=(), **environment):
    """The program's JSON, in a limit that holds much less than it asks for. `before`: what starts `spillway run`."""
    limit = limit_of(machine)
    budget = machine.environment.get("SPILLWAY_HOST_BUDGET", limit)
    printed = machine.run([*before, *under_run("--mode", "replace", "--limit", limit, "--max-slowdown", "none",
                                               "--host-budget", budget, *options),
                           machine.python, PROGRAMS / program, *words], seconds, **environment)
    line = next((line for line in printed.splitlines() if line.startswith("{")), None)
    require(line is not None, f"the program said nothing but: {' '.join(printed.split())[:200]}")
    return json.loads(line)


def spilled_memory(machine, folder):
    return judge_spilled_memory(under_limit(machine, "spilled_memory.py"), machine.simulated)


def judge_spilled_memory(said, simulated):
    wrong = {way: text for way, text in {**said["uses"], "NCCL": said["nccl"]}.items() if text != "right"}
    require(not wrong, "; ".join(f"{way}: {text}" for way, text in wrong.items()))
    speeds = [spill["plain_us"] / spill["us"] for spill in said["spills"]]
    moved = "then ".join(f"{spill['bytes'] / MIB:.0f} MiB " for spill in said["spills"]) + "moved"
    speed = "at " + ", then ".join(f"{speed:.2f}" for speed in speeds) + " of a plain copy's bandwidth"
    require(simulated or min(speeds[1:]) >= BANDWIDTH, f"{moved} {speed}; bar {BANDWIDTH} from the second on")
    back = said["back"]
    require(back["bytes"] > 0, "nothing came back when there was room")
    speed_back = back["plain_us"] / back["us"]
    returned = f"{back['bytes'] / MIB:.0f} MiB came back at {speed_back:.2f}, {back['left'] / MIB:.0f} MiB did not"
    require(simulated or back["bytes"] < LEAST_JUDGED or speed_back >= BANDWIDTH, f"{returned}; bar {BANDWIDTH}")
    attributes = said["attributes"]
    times = f"{moved}, then back; time is not simulated" if simulated else f"{moved} {speed}; {returned}"
    return (f"{times}; kernels, copies, memset and NCCL right; "
            f"driver: memory type {attributes['type']}, device {attributes['device']}, managed "
            f"{attributes['managed']}; sharing: {said['sharing']}")


def operand_on_the_host(machine, folder):
    """Products and a sum that read an operand over the link: whether the values stay, and how often it is read, as far
    as time tells, beside the formula by which Spillway prices such memory."""
    width_and_rows = ("1024", "256") if machine.simulated else ("8192", "256", "2048", "8192")
    return judge_operand(under_limit(machine, "product.py", *width_and_rows), machine.simulated)


def judge_operand(said, simulated):
    require(said["moved"] > said["weight"], f"{said['moved']} bytes were moved, the operand has {said['weight']}")
    wrong = [name for name, use in said["uses"].items() if not use["same"]]
    require(not wrong, f"other values with an operand on the host: {', '.join(wrong)}")
    if simulated:
        return "values are the same; time is not simulated"
    once = said["uses"].pop("sum")
    once_us = max(once["host_us"] - once["card_us"], 1)
    read = [f"{name} read it {(use['host_us'] - use['card_us']) / once_us:.1f} times ({use['formula']:.1f} by the "
            f"formula)" for name, use in said["uses"].items()]
    return f"values are the same; {', '.join(read)}"


def moves_under_launches(machine, folder):
    """Several threads launch while blocks move: for 20 s, and on a card for up to 90 until SERVED."""
    limits = ("20",) if machine.simulated else ("20", "90", str(SERVED))
    return judge_moves(under_limit(machine, "churn.py", *limits), machine.simulated)


def judge_moves(said, simulated):
    require(said["wrong"] == 0, f"{said['wrong']} sums were wrong in {said['rounds']} rounds")
    require(said["rescued"] > 0, "nothing was short of memory")
    few = "" if simulated or said["rescued"] >= SERVED else f" (bar {SERVED}: the time was over)"
    return (f"{said['rounds']} rounds of 4 threads in {said['seconds']:.0f} s, {said['rescued']} failures served{few}, "
            f"{said['refused']} not; sums right")


TRIALS = Part("trials", "spillway doctor", 20, machine_trials)
CHECKS = [
    check("another library's call", 10, native_library_short_of_memory),
    check("training beyond its limit", 90, training_beyond_its_limit),
    check("memory moved to the host", 60, spilled_memory),
    check("operand on the host", 20, operand_on_the_host),
    check(MOVES, 60, moves_under_launches),
]
