#!/usr/bin/env python3
"""What the preloaded library sees of a program: how many launches, whose request failed, and what NVIDIA's own checker
of memory says while blocks move."""
import json
import re
import shutil

from ..machine import BUILD, require
from ..part import NotRun, check
from .rescues import PROGRAMS, limit_of, under_limit, under_run

COUNT = 200
SECONDS = 120
# PyTorch's own request is served by PyTorch, which empties its cache and asks again.
CALLS = {"PyTorch": "served", "another library": "served", "PyTorch, too much": "out of memory"}
CHECKED_SECONDS = 300  # of a program under compute-sanitizer


def run_launching(machine, folder, count):
    """How many launches the run's last line counts, and what CUPTI saw."""
    program = [machine.python, PROGRAMS / "launches.py", str(count)]
    command = [BUILD / "bin/spillway", "run", "--trace", folder / "launches.spill", "--", *program]
    done = machine.start(command, {}, SECONDS)
    require(done.returncode == 0, f"exit code {done.returncode}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    said = re.search(r"(\d+) launch(?:es)?\b", done.stderr)
    require(said is not None, "spillway run counted no launches")
    return int(said[1]), json.loads(done.stdout.strip().splitlines()[-1])


def launches(machine, folder):
    """Those of a program without the loop are taken off, since libraries launch too."""
    before, _ = run_launching(machine, folder, 0)
    hooked, seen = run_launching(machine, folder, COUNT)
    return judge_launches(hooked - before, seen, machine.simulated)


def judge_launches(hooked, seen, simulated):
    """A simulated card that computes launches graphs alone, and has no CUPTI."""
    least = COUNT if simulated else 2 * COUNT
    require(hooked >= least, f"of {COUNT} kernels and {COUNT} graphs the library saw {hooked} launches")
    if sum(seen.values()) == 0:
        raise NotRun(f"{hooked} launches seen of {COUNT} kernels and {COUNT} graphs; CUPTI tells nothing here")
    require(hooked == seen["kernels"] + seen["graphs"],
            f"{hooked} launches seen, by CUPTI {seen['kernels']} kernels and {seen['graphs']} graphs")
    return f"{hooked} launches seen, as many as CUPTI: {seen['kernels']} kernels and {seen['graphs']} graphs"


def whose_call(machine, folder):
    """PyTorch's own requests are told from those of others by the stack, which goes through the runtime."""
    trace = folder / "calls.spill"
    printed = machine.run([*under_run("--limit", limit_of(machine), "--trace", trace), machine.python,
                           PROGRAMS / "whose_call.py"], SECONDS)
    return judge_calls(json.loads(printed), machine.whole_report(trace)["incidents"])


def judge_calls(said, incidents):
    wrong = [f"{who}: {said[who]}" for who, outcome in CALLS.items() if said[who] != outcome]
    require(not wrong, "; ".join(wrong))
    found = [incident["library"] or "nobody" for incident in incidents]
    own = [library.startswith("libc10_cuda") for library in found]
    require(any(own), f"no failed request was found to be PyTorch's, but {', '.join(found) or 'none'}")
    require(not all(own), "the other library's failed request was taken for PyTorch's")
    return f"what failed was found to be of {', '.join(dict.fromkeys(found))}; the cache served the other library"


def moves_under_a_checker(machine, folder):
    """Of what kernels touch, while pages behind addresses change. Calls of the driver that fail are none of its
    business: Spillway tries what a driver has."""
    if machine.simulated:
        raise NotRun("a simulated card is watched by the simulator's referee")
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        raise NotRun("there is no compute-sanitizer here")
    log = folder / "memcheck.txt"
    checked = (checker, "--tool", "memcheck", "--target-processes", "all", "--report-api-errors", "no",
               "--log-file", log)
    said = under_limit(machine, "churn.py", "10", options=("--trace", folder / "checked.spill"),
                       seconds=CHECKED_SECONDS, before=checked)
    return judge_checked(said, log.read_text() if log.exists() else "")


def judge_checked(said, log):
    """Each line of memcheck's begins with equals signs; the last has how many errors there were."""
    require(said["wrong"] == 0, f"{said['wrong']} sums were wrong in {said['rounds']} rounds")
    require(said["rescued"] > 0, "nothing was short of memory")
    counts = re.findall(r"ERROR SUMMARY: (\d+) errors?", log)
    require(counts, f"memcheck came to no end: {' '.join(log.split())[:200]}")
    first = re.search(r"^=+ ((?:Invalid|Misaligned|Illegal|Program hit|Fatal).*)", log, re.M)
    require(set(counts) == {"0"}, f"memcheck: {', '.join(counts)} errors, first {first[1] if first else 'unknown'}")
    return f"{said['rounds']} rounds, {said['rescued']} failures served; memcheck found nothing"


CHECKS = [
    check("launches that are seen", 30, launches),
    check("whose request failed", 20, whose_call),
    check("moves under compute-sanitizer", 90, moves_under_a_checker),
]
