#!/usr/bin/env bash
# most_addresses.sh FILE COMMAND...: the command; FILE gets the most address space that it was seen with, in KiB.
set -euo pipefail
file=$1
setpriv --pdeathsig KILL "${@:2}" &
while kill -0 $! 2> /dev/null; do
  sed -n 's/^VmPeak:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$!/status" > "$file.now" 2> /dev/null || break
  if [ -s "$file.now" ]; then mv "$file.now" "$file"; fi
  sleep 0.01
done
wait $!
