"""gpu-check's table of programs finds what it is there to find: wrong verdicts and errors over their bars.

The card and the rehearsal are made up here, so that the truth is known.
"""
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "tools"))
from gpu_check import rehearsals  # noqa: E402

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
    lines = []
    failed = rehearsals.table(Card(), rehearsal, [("program", {})], lambda *more: lines.extend(more))
    return failed, "\n".join(lines)


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
assert failed and "FAIL: exit code 7" in text, text
print("wrong verdicts and errors over their bars are found")
