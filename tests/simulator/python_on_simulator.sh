#!/bin/bash
# python_on_simulator.sh SIMULATED_LIBRARIES PYTHON SCRIPT [ARGUMENT...]
# Runs a stock program on the simulated card. Fails when it fails, when the referee saw a violation, or when something
# was said on stderr in the simulator's name.
set -u
libraries=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SPILLWAY_SIM_REPORT=$work/report-%p
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
preload="$libraries/libcudart.so.13 $libraries/libcublas.so.13 $libraries/libcublasLt.so.13 $libraries/libcuda.so.1"
env LD_PRELOAD="$preload" "$@" 2>"$work/stderr"
status=$?
cat "$work/stderr" >&2
if [ $status -ne 0 ]; then
  echo "the program ended with status $status" >&2
  exit 1
fi
if grep -q '^spillway' "$work/stderr"; then
  echo "the simulator had something to say" >&2
  exit 1
fi
for report in "$work"/report-*; do
  python3 - "$report" <<'CHECK' || exit 1
import json, sys
violations = json.load(open(sys.argv[1]))["violations"]
if violations["count"]:
    sys.exit("the referee saw violations:\n" + "\n".join(violations["texts"]))
CHECK
done
