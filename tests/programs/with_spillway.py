"""Runs another script with Spillway as PyTorch's CUDA allocator: with_spillway.py script [arguments]."""
import runpy
import sys

import spillway

spillway.install()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
