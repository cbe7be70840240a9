"""A stock training under `spillway run --mode replace`, short of memory, while driver calls fail one after the other:
it has exactly the losses of a training with room, or ends by an exception that names the failure; no crash, no hang,
no leak, no violation.

usage: test_failing_calls.py [STRIDE] [all]     every STRIDE-th call, 1 for each; `all`: also the calls that take no
memory, each function by itself
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", ROOT / "build"))
SPILLWAY = BUILD / "bin" / "spillway"
sys.path.insert(0, str(ROOT / "tests"))
import reports  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_name("programs") / "failing_calls.py"
LIMIT = "56MiB"  # the training takes about 70
OTHERS = ("cuMemUnmap", "cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize", "cuStreamSynchronize",
          "cuMemAddressFree", "cuEventQuery", "cuCtxSynchronize", "cuMemGetInfo")
MOST_SECONDS = 1500


def simulate(folder, command):
    words = [SPILLWAY, "simulate", "--values", "compute", "--capacity", "4GiB", "--", *command]
    settings = {"SPILLWAY_BUILD_DIR": str(BUILD), "SPILLWAY_SIM_REPORT": f"{folder}/simulator.json",
                "SPILLWAY_LEDGER": "off"}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=MOST_SECONDS,
                          cwd=folder, env={**os.environ, **settings})
    assert done.returncode == 0, f"it ended with {done.returncode}:\n{done.stderr[-3000:]}"
    return json.loads(done.stdout)


def useful(report, strategy):
    found = re.search(rf"^ +{strategy} +\d+ +(\d+) ", report, re.MULTILINE)
    return int(found.group(1)) if found else 0


def sweep(expected, stride, *function):
    with tempfile.TemporaryDirectory() as folder:
        run = [SPILLWAY, "run", "--mode", "replace", "--max-slowdown", "none", "--host-budget", "1GiB",
               "--limit", LIMIT, "--trace", f"{folder}/trace.spill", "--"]
        seen = simulate(folder, [*run, sys.executable, PROGRAM, "1", stride, *function])
        violations = json.loads(pathlib.Path(folder, "simulator.json").read_text())["violations"]
        report = reports.text_of(SPILLWAY, f"{folder}/trace.spill")
    assert seen["expected"] == expected, "the limit alone changed the losses"
    assert seen["tried"] > 0 and seen["fired"] == seen["tried"], seen
    assert seen["finished"] + len(seen["raised"]) == seen["fired"], seen
    assert violations["count"] == 0, violations["texts"]
    for strategy in ("stitch", "spill_to_host"):
        assert useful(report, strategy) > 0, f"{strategy} was not needed: the limit is too wide\n{report}"
    print(f"{function[0] if function else 'calls that take memory'}: {seen['fired']} failed one after the other, "
          f"{seen['finished']} trainings finished, {len(seen['raised'])} raised, {seen['seconds']} s", flush=True)
    return seen


def main():
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        expected = simulate(folder, [sys.executable, PROGRAM])["expected"]
    seen = sweep(expected, stride)
    assert 20 * len(seen["raised"]) <= seen["fired"], "a call that fails once is hardly ever the program's end"
    for function in OTHERS if "all" in sys.argv else ():
        sweep(expected, stride, function)


if __name__ == "__main__":
    main()
