#!/usr/bin/env bash
# killed_in_a_step.sh TRAINING...: the training, killed with SIGKILL after its third step.
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" > "$log" 2>&1 &
until grep -q '^step 3/' "$log"; do
  kill -0 $! || { cat "$log" >&2; exit 1; }
  sleep 0.02
done
kill -KILL $!
wait $!
