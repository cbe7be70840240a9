#!/usr/bin/env bash
# killed_in_a_step.sh TRAINING...: the training, killed with SIGKILL after its third step.
set -euo pipefail
. "${0%/*}/training.sh"
start_training 3 "$@"
kill -KILL $training
wait $training
