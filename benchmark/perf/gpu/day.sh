#!/usr/bin/env bash
# Half an hour with one GPU: each stage within ten minutes, complete by itself; a second call goes on where the first was cut.
#   bash benchmark/perf/gpu/day.sh OUT                    all stages in the order of worth
#   bash benchmark/perf/gpu/day.sh OUT correct fast       some of them: correct, fast, rivals, kernels, truth, stretch
#   bash benchmark/perf/gpu/day.sh OUT --smoke [STAGE …]  the same way on a CPU: proves the way, measures nothing
# What the machine needs beside torch is what prepare.sh collects, on PYTHONPATH; `rivals` takes Megatron-LM's checkout from MEGATRON_LM_REPO.
set -euo pipefail
here=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && builtin pwd)
case ${1:-} in '' | -*) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;; esac
out=$1
shift
smoke=()
if [[ ${1:-} == --smoke ]]; then smoke=(--smoke) && shift; fi
(($#)) || set -- correct fast rivals kernels truth stretch
status=0
for stage; do
  echo "== $stage"
  case $stage in
    correct) python3 "$here/correct.py" --output "$out" --budget 540 "${smoke[@]}" || status=1 ;;
    fast) python3 "$here/../gpu_training.py" --only nlp-bench --budget 540 --output "$out/rates" "${smoke[@]}" || status=1 ;;
    rivals) python3 "$here/../gpu_training.py" --budget 540 --output "$out/rates" "${smoke[@]}" || status=1 ;;
    kernels) python3 "$here/by_kernel.py" --output "$out/kernels" --budget 300 "${smoke[@]}" || status=1 ;;
    truth) python3 "$here/truth.py" --output "$out/truth" --budget 540 "${smoke[@]}" || status=1 ;;
    stretch) python3 "$here/stretch.py" --output "$out/stretch" --budget 540 "${smoke[@]}" || status=1 ;;
    *) echo "day.sh: no stage $stage; there are correct, fast, rivals, kernels, truth and stretch" >&2 && exit 2 ;;
  esac
done
exit "$status"
