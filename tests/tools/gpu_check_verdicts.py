"""gpu-check's tables find what they are there to find: wrong verdicts and errors over their bars, and kernels of AdamW
that have other bits than a processor, are slow, or are not there. A first spill may be slow, a second one not. What
programs meet under `spillway run` is judged by what they print.

The card and the rehearsal are made up here, so that the truth is known.
"""
import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "tools"))
from gpu_check import rehearsals, updates  # noqa: E402
from gpu_check.checks import hazards, rescues, seen  # noqa: E402
from gpu_check.machine import CheckFailed  # noqa: E402
from gpu_check.part import NotRun, Part, check  # noqa: E402

MIB = 1 << 20
PEAKS = {"allocated": 1000 * MIB, "reserved": 1500 * MIB, "process": 1900 * MIB}
NEED, OUTSIDE = 1200 * MIB, 400 * MIB


class Card:
    """Completes with a limit of NEED."""

    def run(self, case, limit=0):
        return dict(PEAKS, fits=limit == 0 or limit >= NEED)


class Rehearsal:
    """Says that the program needs `factor` of what it does, and that it has `allocated` of what it has."""

    def __init__(self, factor=1.0, allocated=1.0):
        self.need, self.allocated, self.asked = factor * (NEED + OUTSIDE), allocated, []

    def run(self, case, capacity=0):
        self.asked.append(capacity)
        return dict(PEAKS, fits=capacity == 0 or capacity >= self.need, conditional=False,
                    allocated=self.allocated * PEAKS["allocated"])


class Silent:
    def run(self, case, capacity=0):
        raise rehearsals.NoVerdict("exit code 7")


def said(rehearsal):
    part = Part("rehearsals", "program", 1, lambda _: rehearsals.outcome_of("program", Card(), rehearsal, {}))
    outcome = part.outcome(None)
    return outcome.failed, "\n".join([*outcome.rows, *rehearsals.counts([outcome.data])])


right = Rehearsal()
failed, text = said(right)
assert not failed and "| right |" in text and text.endswith("0 false fits; 0 false does not fit"), text
need = right.asked[1] / 0.98
assert NEED + OUTSIDE <= need <= 1.005 * (NEED + OUTSIDE), "what the process holds outside PyTorch belongs to its need"
assert abs(right.asked[2] / need - 1.02) < 1e-6

failed, text = said(Rehearsal(factor=0.9))
assert failed and "false fits at 0.98" in text and text.endswith("1 false fits; 0 false does not fit"), text
failed, text = said(Rehearsal(factor=1.1))
assert failed and "false does not fit at 1.02" in text and text.endswith("0 false fits; 1 false does not fit"), text
failed, text = said(Rehearsal(allocated=1.011))
assert failed and "allocated over its bar" in text and "+1.10%" in text, text
assert not said(Rehearsal(allocated=0.991))[0]
failed, text = said(Silent())
assert failed and "FAIL | exit code 7" in text, text


class Updated:
    """A card on which the update of 8-bit moments was found to be so, and AdamW's as it should be."""

    def __init__(self, simulated=False, **found):
        self.simulated = simulated
        right = {"remark": "", "kernel_apart": 0, "kernel_bytes_per_second": 8e11,
                 "operators_apart": 0, "operators_bytes_per_second": 1e11}
        self.found = {"simulated": simulated, "numbers": 1000, "copy_bytes_per_second": 1e12,
                      "adamw8bit": {**right, **found}, "adamw": {**right, "kernel_bytes_per_second": 9e11}}

    def start(self, command, environment):
        return subprocess.CompletedProcess(command, 0, json.dumps(self.found), "")


def said_of_update(**found):
    outcome = updates.compare(Updated(**found))
    return outcome.failed, "\n".join(outcome.rows)


failed, text = said_of_update()
assert not failed and "8-bit AdamW, the kernel | 0 | 800 | 0.80 |" in text, text
assert "8-bit AdamW, LibTorch's operators | 0 | 100 | 0.10 |" in text, text
assert "| AdamW, the kernel | 0 | 900 |" in text, text
failed, text = said_of_update(operators_apart=3, operators_apart_in={"Subnormal": 3})
assert failed and "FAIL: LibTorch's operators: 3 numbers have other bits (Subnormal: 3)" in text, text
assert "of the kernel" not in text, text
failed, text = said_of_update(simulated=True, operators_apart=3)
assert not failed and "operators | 3 |" in text, text
failed, text = said_of_update(kernel_apart=2, kernel_apart_in={"Zero": 2}, operators_apart=1,
                              kernel_bytes_per_second=1e11)
assert failed and text.count("8-bit AdamW | FAIL") == text.count("FAIL") == 3, text
assert "FAIL: the kernel: 2 numbers have other bits (Zero: 2)" in text, text
failed, text = said_of_update(kernel_bytes_per_second=4e11)
assert failed and "FAIL: the kernel moves 0.40 of what a copy does" in text, text
slow = Updated()
slow.found["adamw"]["kernel_bytes_per_second"] = 7e11
assert "AdamW | FAIL: the kernel moves 0.70 of what a copy does" in "\n".join(updates.compare(slow).rows)
failed, text = said_of_update(remark="8-bit AdamW by LibTorch's operators: NVRTC was not found")
assert failed and "FAIL: 8-bit AdamW by LibTorch's operators: NVRTC was not found" in text, text
failed, text = said_of_update(simulated=True, kernel_bytes_per_second=1)
assert not failed and "not measured" in text, text


def moved(*ratios, back=0.95, back_bytes=64 * MIB):
    """What spilled_memory.py says of spills at so much of a plain copy's bandwidth."""
    uses = dict.fromkeys(("host", "device", "written", "zeroed"), "right")
    return {"uses": uses, "nccl": "right", "sharing": "shared", "attributes": {"type": 1, "device": 0, "managed": 0},
            "spills": [{"bytes": 64 * MIB, "us": 1000 / ratio, "plain_us": 1000} for ratio in ratios],
            "back": {"bytes": back_bytes, "us": 1000 / back, "plain_us": 1000, "left": 0}}


assert "at 0.20, then 0.95 of a plain copy" in rescues.judge_spilled_memory(moved(0.2, 0.95), simulated=False)


def refused(judge, *arguments, error=CheckFailed):
    """The text with which it is."""
    try:
        raise AssertionError(f"passed: {judge(*arguments)}")
    except error as text:
        return str(text)


assert "bar 0.9 from the second on" in refused(lambda: rescues.judge_spilled_memory(moved(0.95, 0.2), simulated=False))


assert "64 MiB came back at 0.95" in rescues.judge_spilled_memory(moved(0.2, 0.95), simulated=False)
SLOW_BACK = moved(0.2, 0.95, back=0.5)
assert "came back at 0.50, 0 MiB did not; bar 0.9" in refused(rescues.judge_spilled_memory, SLOW_BACK, False)
assert "came back" in rescues.judge_spilled_memory(moved(0.2, 0.95, back=0.5, back_bytes=2 * MIB), simulated=False)
assert "then back" in rescues.judge_spilled_memory(SLOW_BACK, simulated=True)
assert "nothing came back" in refused(rescues.judge_spilled_memory, moved(0.2, 0.95, back_bytes=0), True)


def churned(**found):
    return {"rounds": 5000, "wrong": 0, "refused": 0, "rescued": 1000, "lost": 0, "seconds": 41.0, **found}


assert "1000 failures served, 0 not" in rescues.judge_moves(churned(), simulated=False)
assert "640 failures served (bar 1000: the time was over)" in rescues.judge_moves(churned(rescued=640), simulated=False)
assert "(bar" not in rescues.judge_moves(churned(rescued=40), simulated=True)
assert "1 sums were wrong" in refused(rescues.judge_moves, churned(wrong=1), False)
assert "nothing was short of memory" in refused(rescues.judge_moves, churned(rescued=0), False)


def shared(**found):
    return {"spillway here": True, "spillway in the other process": True, "its own bytes": True, "exit code": 0,
            "moved": MIB, "tensors": {"1 bytes": {"read": "right", "written": "right"}}, **found}


assert "every byte is right" in hazards.judge_shared_tensors(shared())
for change, text in (({"spillway in the other process": False}, "in the other process: no"),
                     ({"moved": 0}, "no memory"), ({"exit code": -11}, "ended with -11"),
                     ({"tensors": {"9 bytes": {"read": "right", "written": "2 of 9"}}}, "9 bytes, written: 2 of 9")):
    assert text in refused(hazards.judge_shared_tensors, shared(**change))

THEN, OUT_OF_MEMORY = {"sum": True, "graph": "right"}, "OutOfMemoryError: CUDA out of memory"


def captured(beside=(), within=(), **found):
    return {"beside": {"growth": "done", "miss": OUT_OF_MEMORY, "graph": "right", "then": THEN, **dict(beside)},
            "within": {"miss": OUT_OF_MEMORY, "graph": "right", "then": THEN, **dict(within)},
            "uncaught": {"capture": OUT_OF_MEMORY, "then": THEN}, "failures": 3, "held": True, **found}


assert "miss (OutOfMemoryError): right" in hazards.judge_captures(captured())
assert "then AcceleratorError" in hazards.judge_captures(captured(within={"graph": "AcceleratorError: previous error"}))
for change, text in (({"beside": {"graph": "AcceleratorError: invalidated"}}, "another thread's failure: Accelerator"),
                     ({"beside": {"growth": OUT_OF_MEMORY}}, "new pages: OutOfMemoryError"),
                     ({"within": {"graph": "wrong values"}}, "wrong values after"),
                     ({"within": {"then": {"sum": True, "graph": "wrong values"}}}, "does not go on"),
                     ({"held": False}, "other values"), ({"failures": 0}, "nothing was short")):
    assert text in refused(hazards.judge_captures, captured(**change))


class Ends:
    """A `spillway run` that passes on what it should, but for one way in which the program ends."""
    simulated, python = False, "python3"

    def __init__(self, wrong=None, code=0):
        self.codes = {**hazards.ENDS, **({wrong: code} if wrong else {})}

    def start(self, command, environment, seconds):
        return subprocess.CompletedProcess(command, self.codes[command[-1]], "used the card\n",
                                           "torch.OutOfMemoryError: CUDA out of memory\nSpillway: out of memory")


assert "code 7, signal 137, abort 134, memory 1" in hazards.ends(Ends(), pathlib.Path())
for way in hazards.ENDS:
    assert f"{way}: 0, not {hazards.ENDS[way]}" in refused(hazards.ends, Ends(way), pathlib.Path())

assert "a: same, b: Error: no compiler" in hazards.judge_operands({"a": "same", "b": "Error: no compiler"})
assert refused(hazards.judge_operands, {"a": "same", "b": "other bits"}) == "b: other bits"
assert "b: with operands" in refused(hazards.judge_operands, {"a": "same", "b": "with operands on the host, Error: x"})
refused(hazards.judge_operands, {"a": "does not repeat itself", "b": "Error: no compiler"}, error=NotRun)


def waited(**found):
    return {"said": "served", "queued": 0.1, "waited": 8.9, "right": True, "moved": MIB, **found}


assert "served after 8.9 s, of 9.0 s of launches" in hazards.judge_long_queue(waited())
assert "refused after 3.0 s: CUDA out" in refused(hazards.judge_long_queue, waited(said="CUDA out", waited=3.0))
assert "no memory was moved" in refused(hazards.judge_long_queue, waited(moved=0))
assert "wrong values" in refused(hazards.judge_long_queue, waited(right=False))
refused(hazards.judge_long_queue, waited(queued=6.0, waited=3.0), error=NotRun)


class Here:
    machine = folder = None


def no_compiler(machine, folder):
    raise NotRun("no compiler")


outcome = check("kernels", 1, no_compiler).outcome(Here())
assert not outcome.failed and outcome.rows == ["| kernels | not run | no compiler |"], outcome.rows


def ranks(**found):
    ways = dict.fromkeys(("all-reduce", "broadcast"), "right")
    right = {"before": ways, "moved": MIB, "after": ways, "what others did not use": "right", "beside it": "right"}
    return [right, {**right, **found}]


assert "2 collectives right" in hazards.judge_ranks(ranks())
for change, text in (({"moved": 0}, "rank 1: no memory"),
                     ({"after": {"all-reduce": "3 of 9"}}, "after that: all-reduce: 3"),
                     ({"before": {"broadcast": "3 of 9"}}, "before its memory moved: broadcast: 3"),
                     ({"beside it": "wrong values"}, "after all: beside it")):
    assert text in refused(hazards.judge_ranks, ranks(**change))

CUPTI, SAW = {"kernels": seen.COUNT, "graphs": seen.COUNT}, 2 * seen.COUNT
assert f"{SAW} launches seen, as many as CUPTI" in seen.judge_launches(SAW, CUPTI, False)
assert "library saw 7 launches" in refused(seen.judge_launches, 7, CUPTI, False)
assert f"{SAW + 1} launches seen, by CUPTI" in refused(seen.judge_launches, SAW + 1, CUPTI, False)
SILENT = dict.fromkeys(CUPTI, 0)
for hooked, simulated in ((SAW, False), (seen.COUNT, True)):
    assert "CUPTI tells nothing" in refused(seen.judge_launches, hooked, SILENT, simulated, error=NotRun)
assert "library saw 0" in refused(seen.judge_launches, 0, SILENT, True)

CHECKED = {"wrong": 0, "rounds": 9, "rescued": 3}
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
INVALID = "========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 2 errors\n"
assert "memcheck found nothing" in seen.judge_checked(CHECKED, CLEAN)
assert "2 errors, first Invalid __global__ read" in refused(seen.judge_checked, CHECKED, INVALID)
assert "came to no end" in refused(seen.judge_checked, CHECKED, "========= COMPUTE-SANITIZER\n")
assert "1 sums were wrong" in refused(seen.judge_checked, {**CHECKED, "wrong": 1}, CLEAN)


def products(**found):
    uses = {"256 rows": {"card_us": 10, "host_us": 110, "same": True, "formula": 1},
            "8192 rows": {"card_us": 100, "host_us": 600, "same": True, "formula": 6.2},
            "sum": {"card_us": 10, "host_us": 110, "same": True, "formula": 1}}
    return {"moved": 2 * MIB, "weight": MIB, "uses": {**uses, **found}}


assert "8192 rows read it 5.0 times (6.2 by the formula)" in rescues.judge_operand(products(), False)
assert "time is not simulated" in rescues.judge_operand(products(), True)
other = {"sum": {"card_us": 10, "host_us": 110, "same": False, "formula": 1}}
assert "other values with an operand on the host: sum" in refused(rescues.judge_operand, products(**other), False)

SERVED = seen.CALLS
OWN, OTHER = {"library": "libc10_cuda.so"}, {"library": "libffi.so.8"}
assert "to be of libc10_cuda.so, libffi.so.8; the cache" in seen.judge_calls(SERVED, [OWN, OTHER])
assert "found to be PyTorch's, but nobody" in refused(seen.judge_calls, SERVED, [{"library": None}])
assert "taken for PyTorch's" in refused(seen.judge_calls, SERVED, [OWN])
assert "another library: error 2" in refused(seen.judge_calls, {**SERVED, "another library": "error 2"}, [OWN, OTHER])
print("wrong verdicts and errors over their bars are found, and kernels that are wrong, slow or absent")
