#!/usr/bin/env bash
# addresses_of_a_step.sh TRAINING...: the address space, in KiB, that the training needs to the end of its first step.
set -euo pipefail
. "${0%/*}/training.sh"
start_training 1 "$@"
sed -n 's/^VmPeak:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$training/status"
