#!/usr/bin/env python3
"""functions_are_current.py SOURCE_DIR CUDA_INCLUDE: fails if the committed lists differ from what the headers give."""
import filecmp
import pathlib
import subprocess
import sys
import tempfile

source, include = pathlib.Path(sys.argv[1]), sys.argv[2]
committed = source / "driver"
with tempfile.TemporaryDirectory() as fresh:
    subprocess.run([sys.executable, source / "driver/generate_functions.py", include, fresh], check=True)
    stale = [name for name in ("functions.inc", "versions.inc")
             if not filecmp.cmp(committed / name, pathlib.Path(fresh) / name, shallow=False)]
if stale:
    sys.exit(f"{stale} differ from what {include}/cuda.h gives: run\n"
             f"  driver/generate_functions.py {include} driver")
