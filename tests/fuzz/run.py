#!/usr/bin/env python3
"""Runs fuzzers of readers (tests/fuzz/<reader>_fuzz.cpp).

    run.py BUILD_FOLDER READER... [--seconds N] [--seed N] [--corpus FOLDER]

Each for N seconds (15 by default), from the seed 1 or the given one. With --corpus it starts from what earlier runs
kept in FOLDER/<reader> and keeps there what it finds. A finding is written to BUILD_FOLDER/fuzz/findings, and is
printed, packed, to be pasted. Exit code 1 for a finding, and 77, which ctest takes for "skipped", where the fuzzers
were not built.
"""
import argparse
import base64
import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LONGEST = 64 << 10  # bytes of an input
NEEDED = ("clang and the libFuzzer of its version (on Debian: apt-get install clang, with libclang-rt-VERSION-dev "
          "where it is a package of its own); then configure anew with -USPILLWAY_FUZZ_COMPILER -USPILLWAY_CLANG")


def program_of(build, reader):
    return build / "bin" / f"fuzz_{reader}"


def command_of(build, reader, seconds, seed, corpus, seeds, findings):
    dictionary = HERE / f"{reader}.dict"
    options = [f"-seed={seed}", f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048",
               f"-max_len={LONGEST}", "-len_control=0", "-print_final_stats=1",
               f"-artifact_prefix={findings}/{reader}-"]
    if dictionary.exists():
        options.append(f"-dict={dictionary}")
    return [program_of(build, reader), *options, corpus, seeds]


def numbers_of(output):
    """(executions, edges) of a run."""
    executed = re.search(r"stat::number_of_executed_units:\s+(\d+)", output)
    edges = re.findall(r" cov: (\d+) ", output)
    return int(executed.group(1)) if executed else 0, int(edges[-1]) if edges else 0


def show(build, reader, output):
    """The last words of the fuzzer, and the input that made it speak."""
    print("\n".join(output.splitlines()[-80:]))
    for path in re.findall(r"Test unit written to (\S+)", output):
        text = base64.b64encode(gzip.compress(pathlib.Path(path).read_bytes(), mtime=0)).decode()
        print(f"fuzz: {reader}: the input is {path}; packed (base64 -d | gunzip):\n{text}\n"
              f"fuzz: repeat it with {program_of(build, reader)} {path}", flush=True)


def run(build, reader, seconds, seed, corpus, seeds):
    """Whether nothing was found. `seeds`: a folder of this run's own, since others may run beside it."""
    findings = build / "fuzz" / "findings"
    for folder in (findings, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([build / "bin" / "fuzz_seeds", seeds, HERE.parent / "tools" / "golden"], check=True)
    # A small quarantine of freed memory: filling a large one is a third of the time.
    environment = os.environ | {"ASAN_OPTIONS": "quarantine_size_mb=16:malloc_context_size=12"}
    command = command_of(build, reader, seconds, seed, corpus, seeds / reader, findings)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          check=False, env=environment)
    executed, edges = numbers_of(done.stdout)
    print(f"fuzz: {reader}: seed {seed}, {seconds} s, {executed} executions, {edges} edges, "
          f"{len(list(corpus.iterdir()))} inputs kept", flush=True)
    if done.returncode != 0:
        show(build, reader, done.stdout)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("readers", nargs="+")
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=pathlib.Path)
    words = parser.parse_args()
    if missing := [reader for reader in words.readers if not program_of(words.build, reader).exists()]:
        print(f"SKIPPED: there is no fuzzer of {', '.join(missing)}: it needs {NEEDED}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as own:
        found = [reader for reader in words.readers
                 if not run(words.build, reader, words.seconds, words.seed,
                            (words.corpus or pathlib.Path(own) / "corpus") / reader, pathlib.Path(own) / "seeds")]
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
