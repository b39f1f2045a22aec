#!/usr/bin/env bash
# Compile the fused kernels of this machine in the environment of benchmark/env; options go to `nlp-bench build`.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
set +u # activate scripts and environment modules read unset variables
# shellcheck source=benchmark/env/activate.bash
source "$root/benchmark/env/activate.bash" "" # without a word of its own it would take ours for a system
set -u
exec nlp-bench build "$@"
