# For scripts of this folder: a training in the background, until it has done a step. It ends with the script, also
# where a test that times out kills that.

# start_training STEP TRAINING...: sets `training` to its process. What it said is shown where it ends before.
start_training() {
  log=$(mktemp)
  setpriv --pdeathsig KILL "${@:2}" > "$log" 2>&1 &
  training=$!
  trap 'kill -KILL $training 2> /dev/null || true; wait; rm -f "$log"' EXIT
  until grep -q "^step $1/" "$log"; do
    kill -0 $training || { cat "$log" >&2; exit 1; }
    sleep 0.02
  done
}
