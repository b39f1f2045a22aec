#!/usr/bin/env bash
# Install what the tests need and run them all: linters, types, unit tests, real torchrun, real Slurm, real JUBE.
#   bash tests/run.sh                         all of them, files beside each other
#   bash tests/run.sh --quick [arguments]     those below half a second, without Slurm, JUBE, torchrun and a browser; none of these is installed
#   bash tests/run.sh [pytest arguments]      for example: bash tests/run.sh tests/logs -k ansi
set -euo pipefail
root=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && builtin pwd)
cd "$root"
quick=
if [[ ${1:-} == --quick ]]; then quick=1 && shift; fi
# shellcheck source=tests/prepare.bash
source tests/prepare.bash

cores=$(nproc)
workers=$((cores < 4 ? cores : 4)) # of all of them twice as many: most wait for Slurm, JUBE and torchrun
if [[ $quick ]]; then
  say "ruff, pytest"
  ruff check --quiet .
  # neighbours stay together: what they share is made once
  exec python -m pytest -n "$workers" --dist worksteal --durations 10 --durations-min 1 \
    -m "not slow and not slurm and not jube and not torchrun and not browser" "$@"
fi
if (($# == 0)); then
  say "shellcheck, ruff, mypy"
  git ls-files -co --exclude-standard '*.sh' '*.bash' .ci/run benchmark/env/nlp-bench | xargs -d '\n' shellcheck -x
  ruff check --quiet .
  ruff format --check --quiet .
  mypy
  set -- -n "$((2 * workers))" --dist loadfile
fi
say "pytest"
exec python -m pytest "$@"
