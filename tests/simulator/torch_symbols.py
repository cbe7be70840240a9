#!/usr/bin/env python3
"""The symbols that PyTorch's wheels import of the libraries that are simulated: each is there, for every version.

    torch_symbols.py SIMULATED_FOLDER TORCH_FOLDER    this version's list is true, and every listed symbol is exported
    torch_symbols.py --write TORCH_FOLDER...          writes these versions into the list, and keeps the others

The list, torch_symbols.txt, has a symbol a line and the versions that import it, so that wheels which are not installed
count too.
"""
import collections
import importlib.machinery
import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE / "torch_symbols.txt"


def load_torch_changes():
    loader = importlib.machinery.SourceFileLoader("torch_changes", str(HERE.parents[1] / "tools" / "torch-changes"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


changes = load_torch_changes()


def minor(torch):
    return ".".join(changes.version(torch).split(".")[:2])


def numbers(version):
    return [int(part) for part in version.split(".")]


def listed():
    """{symbol: the versions that import it}"""
    return {symbol: versions for symbol, *versions in map(str.split, LIST.read_text().splitlines())}


def write(wheels):
    versions = collections.defaultdict(set, {symbol: set(known) for symbol, known in listed().items()})
    for torch in wheels:
        for known in versions.values():
            known.discard(minor(torch))
        for symbol in changes.imported(torch):
            versions[symbol].add(minor(torch))
    lines = (f"{symbol} {' '.join(sorted(known, key=numbers))}\n"
             for symbol, known in sorted(versions.items()) if known)
    LIST.write_text("".join(lines))


def check(simulated, torch):
    known = listed()
    exported = changes.exported(simulated)
    problems = [f"{symbol} is exported by no simulated library (PyTorch {', '.join(versions)} imports it)"
                for symbol, versions in known.items() if symbol not in exported]
    here, now = minor(torch), set(changes.imported(torch))
    if any(here in versions for versions in known.values()):
        recorded = {symbol for symbol, versions in known.items() if here in versions}
        problems += [f"{symbol}: the list is wrong for PyTorch {here}, write it anew" for symbol in now ^ recorded]
    problems += [f"{symbol} of PyTorch {here} is exported by no simulated library" for symbol in now - exported]
    print(f"{len(known)} symbols of {len(set().union(*known.values()))} versions, {len(problems)} problems")
    sys.exit("\n".join(problems) or 0)


def main():
    arguments = sys.argv[1:]
    if len(arguments) > 1 and arguments[0] == "--write":
        write(map(pathlib.Path, arguments[1:]))
    elif len(arguments) == 2:
        check(*map(pathlib.Path, arguments))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
