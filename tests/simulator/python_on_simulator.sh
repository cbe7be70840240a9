#!/bin/bash
# python_on_simulator.sh SPILLWAY PYTHON SCRIPT [ARGUMENT...]
# Runs a stock program with `spillway simulate`, on a card of 40 GiB unless the environment says otherwise. Fails when it
# fails, when the referee saw a violation, or when something was said on stderr in the simulator's name.
set -u
spillway=$1
shift
[ -n "${SPILLWAY_SIM_CARD:-}${SPILLWAY_SIM_CONFIG:-}" ] || export SPILLWAY_SIM_CAPACITY=${SPILLWAY_SIM_CAPACITY:-40GiB}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SPILLWAY_SIM_REPORT=$work/report-%p
"$spillway" simulate -- "$@" 2>"$work/stderr"
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
