"""The `spillway` command of the installed package: becomes the program that the package brings."""
import os
import pathlib
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Replaces this process, so that signals and exit codes are the program's own. What the program runs starts with
    the signals as they were before Python."""
    program = pathlib.Path(__file__).resolve().parent / "bin" / "spillway"
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(program, ["spillway", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"spillway: cannot run {program}: {error.strerror}. Reinstall the package, or in a source tree use "
                 "build/bin/spillway")
