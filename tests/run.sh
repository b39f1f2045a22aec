#!/usr/bin/env bash
# Install what the tests need and run them all: linters, types, unit tests, real torchrun, real Slurm, real JUBE.
#   bash tests/run.sh [pytest arguments]      for example: bash tests/run.sh tests/logs -k ansi
# Without arguments files run beside each other, one per core and at most four: many tests wait for programs.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=tests/prepare.bash
source tests/prepare.bash

if (($# == 0)); then
  say "shellcheck, ruff, mypy"
  git ls-files -co --exclude-standard '*.sh' '*.bash' .ci/run benchmark/env/nlp-bench | xargs -d '\n' shellcheck -x
  ruff check --quiet .
  ruff format --check --quiet .
  mypy
  cores=$(nproc)
  set -- -n "$((cores < 4 ? cores : 4))" --dist loadfile
fi
say "pytest"
exec python -m pytest "$@"
