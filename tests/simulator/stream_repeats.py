#!/usr/bin/env python3
"""stream_repeats.py BUILD_FOLDER: two rehearsals of one program give the same stream of allocations, byte for byte.

With variable lengths and autocast, whose frees follow host addresses; and with other variables in the environment and
another place for what the program prints, which move host addresses.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def stream(build, folder, output, **variables):
    report, trace = folder / "report.json", folder / "trace"
    subprocess.run([build / "bin/spillway", "rehearse", "--gpu", "a100-80gb", "--json", report, "--trace", trace, "--",
                    sys.executable, ROOT / "tests/programs/gpt2_training.py", "--variable-length"],
                   check=True, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ, **variables))
    device = json.loads(report.read_text())["devices"][0]
    return device["events"], device["stream_hash"], hashlib.md5(trace.read_bytes()).hexdigest()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        streams = [stream(build, folder, subprocess.PIPE)]
        with open(folder / "output", "wb") as output:
            streams.append(stream(build, folder, output, SOMETHING="else" * 1000, **{"A_LONGER_NAME" * 9: "1"}))
    print(*streams)
    return int(streams[0] != streams[1] or streams[0][0] == 0)


if __name__ == "__main__":
    sys.exit(main())
