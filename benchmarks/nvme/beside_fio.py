#!/usr/bin/env python3
"""The trainer's block store beside fio on one disk: beside_fio.py BUILD FOLDER [--mebibytes N] [--pairs N].

Both read and write the same bytes past the page cache by io_uring, 64 blocks of 1 MiB at a time. They take turns,
and the ratios are medians of the pairs. Needs fio (Debian's package).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def fio(folder, mebibytes, mode):
    """GB/s of a file whose bytes have been written before."""
    file = os.path.join(folder, "fio.bytes")
    words = ["fio", "--name=x", f"--filename={file}", f"--size={mebibytes}m", "--bs=1m", "--iodepth=64",
             "--direct=1", "--ioengine=io_uring", f"--rw={mode}", "--output-format=json", "--fallocate=posix",
             "--loops=3", "--buffer_pattern=0x5a"]
    job = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["jobs"][0]
    return job[mode]["bw_bytes"] / 1e9


def store(build, folder, mebibytes):
    out = subprocess.run([os.path.join(build, "bin/bench_nvme"), folder, str(mebibytes)], check=True,
                         capture_output=True, text=True).stdout.split()
    return {"write": float(out[1]), "read": float(out[2])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    fio(options.folder, options.mebibytes, "write")  # its places on the disk
    pairs = []
    for _ in range(options.pairs):
        theirs = {mode: fio(options.folder, options.mebibytes, mode) for mode in ("write", "read")}
        pairs.append((store(options.build, options.folder, options.mebibytes), theirs))
    os.unlink(os.path.join(options.folder, "fio.bytes"))
    result = {}
    for mode in ("write", "read"):
        result[mode] = {"store_gbs": statistics.median(ours[mode] for ours, _ in pairs),
                        "fio_gbs": statistics.median(theirs[mode] for _, theirs in pairs),
                        "ratio": statistics.median(ours[mode] / theirs[mode] for ours, theirs in pairs)}
        print("{:5}  store {store_gbs:6.2f} GB/s  fio {fio_gbs:6.2f} GB/s  ratio {ratio:.2f}".format(
            mode, **result[mode]))
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
