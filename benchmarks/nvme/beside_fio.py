#!/usr/bin/env python3
"""The trainer's block store beside fio on one disk: beside_fio.py BUILD FOLDER [--mebibytes N] [--pairs N].

Both write and read the same bytes past the page cache by io_uring, 64 blocks of 1 MiB at a time, from memory in huge
pages, which the trainer's is in, and in pages of 4 KiB. They take turns, and the ratios are medians of the pairs. The
store has a checksum of each block besides. Needs fio (Debian's package) and, for its huge pages, glibc 2.35.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

PAGES = {"huge": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, "small": {}}  # malloc's, for fio


def fio(folder, mebibytes, mode, pages):
    """GB/s of a file whose bytes have been written before."""
    file = os.path.join(folder, "fio.bytes")
    words = ["fio", "--name=x", f"--filename={file}", f"--size={mebibytes}m", "--bs=1m", "--iodepth=64",
             "--direct=1", "--ioengine=io_uring", f"--rw={mode}", "--output-format=json", "--fallocate=posix",
             "--loops=3", "--buffer_pattern=0x5a"]
    job = json.loads(subprocess.run(words, check=True, capture_output=True, text=True,
                                    env={**os.environ, **PAGES[pages]}).stdout)["jobs"][0]
    return job[mode]["bw_bytes"] / 1e9


def store(build, folder, mebibytes, pages):
    options = ["--small-pages"] if pages == "small" else []
    out = subprocess.run([os.path.join(build, "bin/bench_nvme"), *options, folder, str(mebibytes)], check=True,
                         capture_output=True, text=True).stdout.split()
    return {"write": float(out[1]), "read": float(out[2])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    fio(options.folder, options.mebibytes, "write", "huge")  # its places on the disk
    pairs = {pages: [] for pages in PAGES}
    for _ in range(options.pairs):
        for pages, of_pages in pairs.items():
            theirs = {mode: fio(options.folder, options.mebibytes, mode, pages) for mode in ("write", "read")}
            of_pages.append((store(options.build, options.folder, options.mebibytes, pages), theirs))
    os.unlink(os.path.join(options.folder, "fio.bytes"))
    result = {}
    for pages, of_pages in pairs.items():
        for mode in ("write", "read"):
            figures = {"store_gbs": statistics.median(ours[mode] for ours, _ in of_pages),
                       "fio_gbs": statistics.median(theirs[mode] for _, theirs in of_pages),
                       "ratio": statistics.median(ours[mode] / theirs[mode] for ours, theirs in of_pages)}
            result[f"{mode}_{pages}"] = figures
            print("{:5} {:5} pages  store {store_gbs:5.2f} GB/s  fio {fio_gbs:5.2f} GB/s  ratio {ratio:.2f}".format(
                mode, pages, **figures), flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
