#!/usr/bin/env bash
# The whole benchmark in one command: set up what is missing, run it through JUBE, print the table.
#   bash benchmark/run.sh [TAG …]     without a tag: the tiny model on this machine, in about a minute
#   bash benchmark/run.sh 175 juwels-booster
#   bash benchmark/run.sh 175 rehearse    no job: the training step without data and GPUs (docs/bids.md)
# Afterwards: the answer is printed; CSV, markdown, HTML and plots are in reports/latest.
# shellcheck disable=SC2128,SC2317 # other shells have none, and a sourced script would change, or end, the user's own
[ "${BASH_SOURCE:-}" = "$0" ] || { echo "nlp-bench: error: run it with bash: bash ${BASH_SOURCE:-$0}" >&2; return 2 2> /dev/null || exit 2; }
set -euo pipefail
unset JUBE_INCLUDE_PATH # of another checkout: JUBE would take that one's parameters.yaml
root=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && builtin pwd)
yaml=$root/benchmark/jube/nlp_benchmark.yaml
[[ -e $yaml ]] || { echo "nlp-bench: error: $0 is a copy without its checkout, as sbatch and qsub make of a script: hand over one that says: bash CHECKOUT/benchmark/run.sh" >&2; exit 2; }
runs=$root/benchmark/jube/nlp_benchmark_run
nlp_bench=(bash "$root/benchmark/env/nlp-bench") # also where it has lost its mode, or may not be executed

say() { echo "nlp-bench: $*" >&2; }

failed_steps() { # failed_steps RUN: what the steps that failed said
  local marker step
  for marker in "$1"/*/error; do
    [[ -e $marker ]] || continue
    step=${marker%/error}
    say "step ${step##*/} failed:"
    tail -n 5 "$step/work/stderr" >&2 || true
  done
}

newest_run() {
  local all=("$runs"/[0-9]*)
  [[ ! -e ${all[-1]} ]] || echo "${all[-1]}"
}

ask_status() { # set `status` to JUBE's word, the last that it says: a site's wrapper prints a banner before it
  local said
  said=$(jube status "$runs" --id "$id") || true
  status=${said##*[[:space:]]}
  [[ $status =~ ^(RUNNING|FINISHED|ERROR)$ ]] || { say "error: jube status $runs --id $id says ${said:-nothing}"; exit 1; }
}

case ${1:-} in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;; esac
given=() # without the word that jube wants before them
for tag in "$@"; do
  case $tag in
    --tag | -t) ;;
    -*) say "error: $tag: run.sh takes tags, no options: bash benchmark/run.sh 13; with options: nlp-bench submit --model 13 ... (--help)"; exit 2 ;;
    *) given+=("$tag") ;;
  esac
done
set -- "${given[@]}"
case $root in *[\"\$,\\\`$'\n']*) # JUBE puts it between quotes into the shell's commands
  say "error: JUBE takes no folder with a quote, dollar, backquote, comma, backslash or line end in its name: $root; move the checkout"
  exit 2 ;;
esac

place=$runs; [[ -e $runs || -L $runs ]] || place=${runs%/*}
for place in "$place" "$root/reports"; do # a colleague's, what a run of root's (sudo) has left, or in a container that may only be read
  [[ ! -L $place || -e $place ]] ||
    { say "error: $place is a link to $(readlink -- "$place"), which is not there (purged?): make that folder again, or remove the link (rm)"; exit 2; }
  [[ ! -e $place || -w $place ]] || {
    say "error: $place, which is of $(stat -c %U -- "$place"), cannot be written: let its owner open it to your group (chmod -R g+w)," \
      "or run a copy of your own: git config --global --add safe.directory $(printf %q "$root/.git"); git clone $(printf %q "$root");" \
      "what a run of root's has left: sudo chown -R"
    exit 2
  }
done
latest=$root/reports/latest
[[ ! -e $latest || -O $latest ]] || latest+=-$(id -un 2> /dev/null || true) # of a colleague who works in this checkout, too

"${nlp_bench[@]}" check --tags "$@" > /dev/null # a wrong tag or too large a model is refused before anything is set up
tags=(); (($# == 0)) || tags=(--tag "$@")
system=()
for tag in "$@"; do [[ ! -e $root/benchmark/systems/$tag.toml ]] || system=(--system "$tag"); done
rehearse=false
if [[ " $* " == *" rehearse "* ]]; then rehearse=true system=(); fi # it runs here, whichever machine is meant

say "1/4 software"
bash "$root/benchmark/env/setup_venv.sh" "${system[@]}"
# shellcheck source=benchmark/env/jube.bash
source "$root/benchmark/env/jube.bash"
nlp_bench_find_jube "$root"

say "2/4 run: jube run $yaml ${tags[*]}"
mkdir -p "$runs"
before=$(newest_run)
log=$(mktemp "$runs/.jube.XXXXXX") # not below TMPDIR, which may be full: nobody would know the run's number
trap 'rm -f "$log"' EXIT
set -m # JUBE gets a process group of its own, so that Ctrl-C can end all of it
jube run "$yaml" --hide-animation "${tags[@]}" > "$log" 2>&1 &
jube=$!
set +m
stop() {
  set +e # a terminal that was closed takes no word
  say "stopping"
  kill -- -"$jube" 2> /dev/null || true
  wait "$jube" || true
  # JUBE dies at once, its steps write down first how the run ended.
  for ((i = 0; i < 400; i++)); do kill -0 -- -"$jube" 2> /dev/null || break; sleep 0.1; done
  run=${run:-$(newest_run)}
  [[ $run != "$before" ]] || run=/dev/null # it has not made its folder, or in another outpath
  mapfile -t jobs < <(for one in "$run"/*_train/work/submit.json; do
    [[ ! -e $one || -e ${one%/*}/outcome.json ]] || sed -n 's/^ "job_id": "\(.*\)",$/\1/p' "$one"
  done)
  ((${#jobs[@]} == 0)) || say "job ${jobs[*]} of $run stays in the queue, and run.sh again would begin another run; to go on with this one:" \
    "bash $(printf %q "$root/benchmark/env/nlp-bench") watch --continue $(printf %q "$run"); to end it: scancel ${jobs[*]}"
  exit 130
}
trap stop INT TERM HUP # nohup's is ignored on
"${nlp_bench[@]}" watch --new --while-pid "$jube" --every 2 "$runs" &
wait $! || true # in the background: a signal is then handled at once
wait "$jube" || { cat "$log" >&2; exit 1; }
id=$(grep -oE '^>>>> +id: [0-9]+' "$log" | grep -oE '[0-9]+$' | tail -n 1) || { cat "$log" >&2; exit 1; }
runs=$(sed -n 's/^>>>> *handle: //p' "$log" | tail -n 1) # where it has put the run: by the outpath of $yaml, which a user may change

say "3/4 wait for run $id"
run=$runs/$(printf %06d "$id")
ask_status
if [[ $status == RUNNING ]]; then
  "${nlp_bench[@]}" watch --continue --every 10 "$run" || true
  ask_status
fi
failed_steps "$run"
say "4/4 result: jube result -a $runs --id $id"
if "$rehearse"; then # nothing was measured
  jube result -a "$runs" --id "$id" || true
  [[ $status == FINISHED ]]
  exit
fi
jube result -a "$runs" --id "$id" > "$log" || cat "$log" >&2
code=0
"${nlp_bench[@]}" report "$run" --output "$latest" || code=$?
echo
for file in "$latest/report.html" "$latest/report.csv" "$run/result/result.dat"; do # JUBE's table is the last
  [[ ! -e $file ]] || echo "open       $file"
done
[[ $code == 0 && $status == FINISHED ]]
