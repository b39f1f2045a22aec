#!/usr/bin/env bash
# Run the tests N times in a row, by turns on an idle and on a loaded machine (a busy process per core), until one run fails.
#   bash tests/soak/repeat.sh 20 [pytest arguments]     for example: bash tests/soak/repeat.sh 20 tests/launch
# Prints one line per run; keeps the output of a run that failed.
set -euo pipefail
root=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && builtin pwd)
cd "$root"
case ${1:-} in '' | *[!0-9]*) sed -n '2,4s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;; esac
runs=$1
shift
# shellcheck source=tests/prepare.bash
source tests/prepare.bash

log=$(mktemp -t nlp-bench-repeat.XXXXXX)
load=()
rest() {
  ((${#load[@]} == 0)) || kill "${load[@]}" 2> /dev/null || true
  load=()
}
trap rest EXIT
for ((run = 1; run <= runs; run++)); do
  state=idle
  if ((run % 2 == 0)); then
    state=loaded
    for ((core = $(nproc); core > 0; core--)); do
      while :; do :; done &
      load+=($!)
    done
  fi
  start=$SECONDS
  if ! python -m pytest -q -n 2 --dist loadfile "$@" > "$log" 2>&1; then
    tail -n 40 "$log"
    say "run $run of $runs ($state) failed after $((SECONDS - start)) s; its output: $log"
    exit 1
  fi
  rest
  echo "run $run of $runs ($state): $(tail -n 1 "$log"), $((SECONDS - start)) s"
done
rm -f "$log"
echo "repeat: $runs runs in a row without a failure"
