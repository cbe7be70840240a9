#!/usr/bin/env bash
# beside_training.sh TRAINING... -- COMMAND...: COMMAND, beside a training that is under way and is killed after it.
# The training ends with this script also where a test that times out kills the script.
set -euo pipefail
training=()
while [ "$1" != -- ]; do
  training+=("$1")
  shift
done
shift
log=$(mktemp)
setpriv --pdeathsig KILL "${training[@]}" > "$log" 2>&1 &
other=$!
trap 'kill -KILL $other || true; wait; rm -f "$log"' EXIT
until grep -q '^step 1/' "$log"; do
  kill -0 $other || { cat "$log" >&2; exit 1; }
  sleep 0.05
done
"$@"
