#!/usr/bin/env bash
# addresses_of_a_step.sh TRAINING...: the address space, in KiB, that the training needs to the end of its first step.
# It ends with this script also where a test that times out kills the script.
set -euo pipefail
log=$(mktemp)
setpriv --pdeathsig KILL "$@" > "$log" 2>&1 &
training=$!
trap 'kill -KILL $training 2> /dev/null || true; wait; rm -f "$log"' EXIT
until grep -q '^step 1/' "$log"; do
  kill -0 $training || { cat "$log" >&2; exit 1; }
  sleep 0.02
done
sed -n 's/^VmPeak:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$training/status"
