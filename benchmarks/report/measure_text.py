#!/usr/bin/env python3
"""Measures `spillway report` of a memory snapshot of many events, as text: measure_text.py SPILLWAY [EVENTS].

Ten million events by default, a file of 590 MB; making it takes a minute and 5 GB of memory. Prints the time, the
processor's time, and the most memory that the report had, all of one run.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def main(spillway, events):
    with tempfile.TemporaryDirectory() as folder:
        snapshot = f"{folder}/run.pickle"
        subprocess.run([sys.executable, HERE / "make_snapshot.py", str(events), snapshot], check=True,
                       stdout=subprocess.DEVNULL)
        size = pathlib.Path(snapshot).stat().st_size
        # A process of its own: the most memory is of all children together.
        program = ("import resource, subprocess, sys\n"
                   "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
                   "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
                   "print(used.ru_utime + used.ru_stime, used.ru_maxrss)")
        begun = time.monotonic()
        said = subprocess.run([sys.executable, "-c", program, spillway, "report", snapshot], check=True,
                              capture_output=True, text=True).stdout
        wall = time.monotonic() - begun
    processor, kibibytes = said.split()
    print(f"{events} events, {size / 1e6:.0f} MB: {wall:.1f} s, {float(processor):.1f} s of the processor, "
          f"at most {int(kibibytes) * 1024 / 1e6:.0f} MB of memory")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000)
