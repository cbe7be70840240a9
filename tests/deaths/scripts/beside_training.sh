#!/usr/bin/env bash
# beside_training.sh TRAINING... -- COMMAND...: COMMAND, beside a training that is under way and is killed after it.
set -euo pipefail
. "${0%/*}/training.sh"
words=()
while [ "$1" != -- ]; do
  words+=("$1")
  shift
done
shift
start_training 1 "${words[@]}"
"$@"
