#!/usr/bin/env python3
"""The trainer's block store beside fio on one disk: beside_fio.py BUILD FOLDER [--mebibytes N] [--pairs N].

Both write and read the same file, past the page cache, by io_uring, 64 blocks of 1 MiB at a time: where a file lies
decides more than who writes it. The memory is in huge pages, as the trainer's is, and then in pages of 4 KiB. They take
turns, and the ratios are medians of the pairs. The store makes and compares checksums besides. Needs fio (Debian's
package) and, for its huge pages, glibc 2.35.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

PAGES = {"huge": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, "small": {}}  # malloc's, for fio


class Store:
    """bench_nvme, whose file has no name."""

    def __init__(self, build, folder, mebibytes, pages):
        options = ["--small-pages"] if pages == "small" else []
        self.process = subprocess.Popen([os.path.join(build, "bin/bench_nvme"), *options, "--again", folder,
                                         str(mebibytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def measure(self):
        print(file=self.process.stdin, flush=True)
        _, written, read = self.process.stdout.readline().split()
        return {"write": float(written), "read": float(read)}

    def file(self):
        descriptors = pathlib.Path(f"/proc/{self.process.pid}/fd")
        return next(str(each) for each in descriptors.iterdir() if os.readlink(each).endswith(" (deleted)"))


def fio(file, mebibytes, mode, pages):
    """GB/s."""
    words = ["fio", "--name=x", f"--filename={file}", f"--size={mebibytes}m", "--bs=1m", "--iodepth=64",
             "--direct=1", "--ioengine=io_uring", f"--rw={mode}", "--output-format=json", "--fallocate=none",
             "--allow_file_create=0", "--loops=3", "--buffer_pattern=0x5a"]
    job = json.loads(subprocess.run(words, check=True, capture_output=True, text=True,
                                    env={**os.environ, **PAGES[pages]}).stdout)["jobs"][0]
    return job[mode]["bw_bytes"] / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    result = {}
    for pages in PAGES:
        store, pairs = Store(options.build, options.folder, options.mebibytes, pages), []
        for _ in range(options.pairs):
            theirs = {mode: fio(store.file(), options.mebibytes, mode, pages) for mode in ("write", "read")}
            pairs.append((store.measure(), theirs))
        store.process.communicate()
        for mode in ("write", "read"):
            figures = {"store_gbs": statistics.median(ours[mode] for ours, _ in pairs),
                       "fio_gbs": statistics.median(theirs[mode] for _, theirs in pairs),
                       "ratio": statistics.median(ours[mode] / theirs[mode] for ours, theirs in pairs)}
            result[f"{mode}_{pages}"] = figures
            print("{:5} {:5} pages  store {store_gbs:5.2f} GB/s  fio {fio_gbs:5.2f} GB/s  ratio {ratio:.2f}".format(
                mode, pages, **figures), flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
