#!/usr/bin/env bash
# killed_in_a_step.sh TRAINING...: the training, killed with SIGKILL after its third step.
# It ends with this script also where a test that times out kills the script.
set -euo pipefail
log=$(mktemp)
setpriv --pdeathsig KILL "$@" > "$log" 2>&1 &
training=$!
trap 'kill -KILL $training 2> /dev/null || true; wait; rm -f "$log"' EXIT
until grep -q '^step 3/' "$log"; do
  kill -0 $training || { cat "$log" >&2; exit 1; }
  sleep 0.02
done
kill -KILL $training
wait $training
