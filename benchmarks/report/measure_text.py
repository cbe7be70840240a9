#!/usr/bin/env python3
"""Measures `spillway report`, as text, of each source that it reads: measure_text.py BUILD [EVENTS] [SOURCE...].

Ten million events by default, of a trace of Spillway's (`trace`), a memory snapshot of PyTorch's (`snapshot`; making it
takes a minute and 5 GB of memory) and a log of RMM's (`log`), files of 590 MB to 1.1 GB, one after the other. Prints
the time, the processor's time, and the most memory that the report had. Exit code 1 where a bar is missed.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MOST_SECONDS, MOST_BYTES = 10, 1e9  # of the processor: others may use the machine


def makers(build):
    return {"trace": [build / "bin" / "make_trace"], "snapshot": [sys.executable, HERE / "make_snapshot.py"],
            "log": [sys.executable, HERE / "make_log.py"]}


def measure(spillway, path):
    """(seconds, seconds of the processor, bytes)"""
    # A process of its own: the most memory is of all children together.
    program = ("import resource, subprocess, sys\n"
               "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
               "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
               "print(used.ru_utime + used.ru_stime, used.ru_maxrss)")
    begun = time.monotonic()
    said = subprocess.run([sys.executable, "-c", program, spillway, "report", path], check=True, capture_output=True,
                          text=True).stdout
    processor, kibibytes = said.split()
    return time.monotonic() - begun, float(processor), int(kibibytes) * 1024


def main(build, events, sources):
    met = True
    for source in sources or makers(build):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / source
            subprocess.run([*makers(build)[source], str(events), path], check=True, stdout=subprocess.DEVNULL)
            wall, processor, memory = measure(build / "bin" / "spillway", path)
            size = path.stat().st_size
        met = met and processor <= MOST_SECONDS and memory <= MOST_BYTES
        print(f"{source}: {events} events, {size / 1e6:.0f} MB: {wall:.1f} s, {processor:.1f} s of the processor, "
              f"at most {memory / 1e6:.0f} MB of memory", flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    arguments = sys.argv[2:]
    given = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 10_000_000
    sys.exit(main(pathlib.Path(sys.argv[1]), given, arguments))
