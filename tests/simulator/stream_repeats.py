#!/usr/bin/env python3
"""stream_repeats.py BUILD_FOLDER: two rehearsals of one program give the same stream of allocations, byte for byte.

With variable lengths and autocast, whose frees follow host addresses. Skipped where the system refuses a process the
same addresses in every run, as some containers do.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED = 77


def stream(build, folder):
    report = pathlib.Path(folder) / "report.json"
    subprocess.run([build / "bin/spillway", "rehearse", "--gpu", "a100-80gb", "--json", report, "--",
                    ROOT / ".deps/bin/python", ROOT / "tests/programs/gpt2_training.py", "--variable-length"],
                   check=True, capture_output=True)
    device = json.loads(report.read_text())["devices"][0]
    return device["events"], device["stream_hash"]


def main():
    if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode != 0:
        print("skipped: host addresses can not be fixed here")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        streams = [stream(pathlib.Path(sys.argv[1]).resolve(), folder) for _ in range(2)]
    print(*streams)
    return int(streams[0] != streams[1] or streams[0][0] == 0)


if __name__ == "__main__":
    sys.exit(main())
