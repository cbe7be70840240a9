#!/usr/bin/env python3
"""What ends programs, or gives them wrong values, where an allocator under them does not expect it: streams that are
gone, memory that two processes share, captures. Each check is a program under `spillway run --mode replace`."""
import json

from ..machine import MIB, ROOT, require
from ..part import NotRun, check, check_with
from .rescues import PROGRAMS, limit_of, under_limit, under_run

DESTROYED_STREAM = ROOT / "tests/interpose/programs/destroyed_stream.py"
SECONDS = 120  # after which a program hangs
QUEUE, LEAST_WAIT = 9, 5  # seconds that are queued, and for which the request at least waits


def destroyed_stream(machine, folder):
    """Once as it is, and once with a block that was recorded on the stream and is freed after its end."""
    trace, served = folder / "streams.spill", 0
    options = ("--mode", "replace", "--limit", limit_of(machine), "--trace", trace)
    for words in ((), ("late",)):
        printed = machine.run([*under_run(*options), machine.python, DESTROYED_STREAM, *words], SECONDS)
        require(printed == "served True\nserved again\n", f"{' '.join(['it said', *printed.split()])}")
        report = machine.report(trace)
        require(report["failures"] > 0 and report["gave_up"] == 0,
                f"{report['failures']} failures, {report['gave_up']} lost")
        served += report["rescued"]
    return f"{served} failures served after the end of 6 streams, one block freed after its stream's end; values right"


def shared_tensors(machine, folder):
    """Two processes, each with Spillway's allocator, and the tensors of one."""
    return judge_shared_tensors(under_limit(machine, "sharing.py", options=("--trace", folder / "shared.spill"),
                                            seconds=SECONDS))


def judge_shared_tensors(said):
    for where in ("spillway here", "spillway in the other process", "its own bytes"):
        require(said[where], f"{where}: no")
    require(said["exit code"] == 0, f"the other process ended with {said['exit code']}")
    require(said["moved"] > 0, "no memory was moved to the host")
    wrong = [f"{name}, {way}: {text}" for name, ways in said["tensors"].items() for way, text in ways.items()
             if text != "right"]
    require(not wrong, "; ".join(wrong))
    return (f"{len(said['tensors'])} tensors, one of which lay on the host ({said['moved'] / MIB:.0f} MiB): every byte "
            f"is right in both processes, in both directions")


# What a program ends by, and what a shell then sees.
ENDS = {"code": 7, "signal": 128 + 9, "abort": 128 + 6, "memory": 1}


def ends(machine, folder):
    start = under_run("--mode", "replace", "--limit", limit_of(machine), "--host-budget", "0",
                      "--trace", folder / "ends.spill")
    for way, code in ENDS.items():
        done = machine.start([*start, machine.python, PROGRAMS / "ends.py", way], {}, SECONDS)
        require(done.stdout == "used the card\n", f"{way}: it said '{done.stdout.strip()}' {last_line(done.stderr)}")
        require(done.returncode == code, f"{way}: {done.returncode}, not {code}: {last_line(done.stderr)}")
        require(way != "memory" or "torch.OutOfMemoryError: " in done.stderr, f"{way}: {last_line(done.stderr)}")
    return "exit codes are the program's: " + ", ".join(f"{way} {code}" for way, code in ENDS.items())


def captures(machine, folder):
    """Another thread's requests leave a capture alone. A failure in it is PyTorch's error, and the program goes on."""
    return judge_captures(under_limit(machine, "captures.py", options=("--trace", folder / "captures.spill"),
                                      seconds=SECONDS))


def judge_captures(said):
    beside, within, uncaught = said["beside"], said["within"], said["uncaught"]
    require(beside["growth"] == "done", f"another thread's request of new pages: {beside['growth']}")
    require(beside["graph"] == "right", f"a capture beside another thread's failure: {beside['graph']}")
    require(within["graph"] != "wrong values", "wrong values after a failure in a capture")
    require(said["failures"] > 0, "nothing was short of memory")
    for place in (beside, within, uncaught):
        require(place["then"] == {"sum": True, "graph": "right"}, f"the program does not go on: {place}")
    require(said["held"], "what the program held has other values")
    return (f"a capture beside another thread's new pages and its miss ({kind(beside['miss'])}): right; a miss within: "
            f"{kind(within['miss'])}, then {kind(within['graph'])}; not caught: {kind(uncaught['capture'])}; the "
            f"program goes on")


def moved_operands(machine, folder):
    said = under_limit(machine, "moved_operands.py", options=("--trace", folder / "operands.spill"), seconds=SECONDS,
                       TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"), TRITON_CACHE_DIR=str(folder / "triton"))
    require(said["moved"] >= said["operands"], f"{said['moved']} bytes moved, the operands have {said['operands']}")
    return judge_operands(said["said"])


def judge_operands(said):
    """What cannot run with its operands on the card decides nothing."""
    wrong = [f"{name}: {text}" for name, text in said.items() if text == "other bits" or "on the host" in text]
    require(not wrong, "; ".join(wrong))
    text = ", ".join(f"{name}: {text}" for name, text in said.items())
    if "same" not in said.values():
        raise NotRun(text.replace("|", "/"))
    return f"with operands on the host, {text.replace('|', '/')}"


def long_queue(machine, folder):
    """A move of memory waits for what is queued for as long as it gets on."""
    if machine.simulated:
        raise NotRun("a simulated card's launches take no time")
    said = under_limit(machine, "long_queue.py", str(QUEUE), options=("--trace", folder / "queue.spill"),
                       seconds=SECONDS)
    return judge_long_queue(said)


def judge_long_queue(said):
    require(said["said"] == "served", f"refused after {said['waited']:.1f} s: {said['said']}")
    require(said["right"], "wrong values")
    require(said["moved"] > 0, "no memory was moved")
    if said["waited"] < LEAST_WAIT:
        raise NotRun(f"launching took {said['queued']:.1f} s, and only {said['waited']:.1f} s of the queue were left")
    return (f"served after {said['waited']:.1f} s, of {said['queued'] + said['waited']:.1f} s of launches; "
            f"{said['moved'] / MIB:.0f} MiB moved, values right")


def two_ranks(setting):
    """Two processes, a card each, and NCCL between them on memory that moves in each."""
    machine = setting.with_two_cards()
    if machine is None:
        raise NotRun("this machine has one card")
    folder, limit = setting.folder / "ranks", limit_of(machine)
    folder.mkdir()
    machine.run([*under_run("--mode", "replace", "--limit", limit, "--max-slowdown", "none", "--host-budget",
                            machine.environment.get("SPILLWAY_HOST_BUDGET", limit), "--trace", folder / "ranks.spill"),
                 machine.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                 PROGRAMS / "two_ranks.py", folder], SECONDS)
    return judge_ranks([json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)])


def judge_ranks(ranks):
    for rank, said in enumerate(ranks):
        require(said["moved"] > 0, f"rank {rank}: no memory was moved")
        whole = {way: said[way] for way in ("what others did not use", "beside it")}
        for when, ways in (("before its memory moved", said["before"]), ("after that", said["after"]),
                           ("after all", whole)):
            wrong = [f"{way}: {text}" for way, text in ways.items() if text != "right"]
            require(not wrong, f"rank {rank}, {when}: {'; '.join(wrong)}")
    return (f"{len(ranks[0]['after'])} collectives right on memory of which {ranks[0]['moved'] / MIB:.0f} and "
            f"{ranks[1]['moved'] / MIB:.0f} MiB were moved to the host")


def kind(outcome):
    """Without the error's text."""
    return outcome.split(":")[0]


def last_line(text):
    return " ".join(text.strip().splitlines()[-1:])


CHECKS = [
    check("a destroyed stream, then a failure", 30, destroyed_stream),
    check("tensors shared by two processes", 40, shared_tensors),
    check("how programs end", 40, ends),
    check("failures during a capture", 20, captures),
    check("kernels with moved operands", 30, moved_operands),
    check("a request behind a long queue", 25, long_queue),
    check_with("NCCL between two ranks", 40, two_ranks),
]
