#!/usr/bin/env python3
"""Compares what the wheel's libraries import from one CUDA library with what the simulator's library exports.

    runtime_symbols.py [--unversioned PREFIX] SIMULATED_LIBRARY IMPORTING_LIBRARY...

The symbol version is the file name of the simulated library, as in NVIDIA's; of a library that has none, the names that
begin with PREFIX are its own. Fails on a gap, and when nothing at all
is imported: then the list is wrong and not the library right.
"""
import os
import subprocess
import sys


def dynamic_symbols(library):
    """Yields (name@version or name@@version, is defined)."""
    command = ["readelf", "--dyn-syms", "--wide", library]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            yield fields[7], fields[6] != "UND"


def imported(library, node, prefix):
    return {name.split("@")[0] for name, defined in dynamic_symbols(library)
            if not defined and (name.startswith(prefix) if prefix else name.endswith(f"@{node}"))}


def exported(library, node):
    return {name.split("@")[0] for name, defined in dynamic_symbols(library)
            if defined and name.endswith(f"@@{node}")}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    arguments, prefix = sys.argv[1:], None
    if arguments[0] == "--unversioned":
        prefix, arguments = arguments[1], arguments[2:]
    simulated, importers = arguments[0], arguments[1:]
    node = os.path.basename(simulated)
    wanted = set().union(*(imported(library, node, prefix) for library in importers))
    missing = sorted(wanted - exported(simulated, node))
    print(f"{node}: {len(wanted)} symbols imported, {len(missing)} missing")
    if not wanted:
        sys.exit(f"no library imports anything with the version {node}")
    if missing:
        sys.exit("missing: " + " ".join(missing))


if __name__ == "__main__":
    main()
