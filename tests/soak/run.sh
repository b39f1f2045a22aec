#!/usr/bin/env bash
# Every figure of docs/reliability.md, measured: faults, endings, kills, fuzzing, orphans, a soak of Slurm jobs. An hour on two idle cores.
#   bash tests/soak/run.sh              print the figures
#   bash tests/soak/run.sh --write      and put them into docs/reliability.md
#   bash tests/soak/run.sh --part 50    a fiftieth of each, to see that all of them work
#   bash tests/soak/run.sh --only orphans,table      some of them
set -euo pipefail
root=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && builtin pwd)
cd "$root"
case ${1:-} in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;; esac
# shellcheck source=tests/prepare.bash
source tests/prepare.bash
exec python tests/soak/figures.py "$@"
