#!/usr/bin/env bash
# Compile the fused kernels of this machine in the virtual environment.
#   compile_build.sh [--system NAME | --run RUN_JSON] [options of `nlp-bench build`, for example --apex GIT_URL_OR_PATH]
# shellcheck disable=SC2128,SC2317 # other shells have none, and a sourced script would change, or end, the user's own
[ "${BASH_SOURCE:-}" = "$0" ] || { echo "nlp-bench: error: run it with bash: bash ${BASH_SOURCE:-$0}" >&2; return 2 2> /dev/null || exit 2; }
set -euo pipefail

root=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && builtin pwd)
[[ -e $root/benchmark/env/activate.bash ]] || { echo "nlp-bench: error: $0 is a copy without its checkout, as sbatch and qsub make of a script: hand over one that says: bash CHECKOUT/src/compile_build.sh" >&2; exit 2; }
choose=() options=()
while (($#)); do
  case $1 in
    --system | --run) choose=("$1" "${2:?$1 needs a value}") && shift 2 ;;
    *) options+=("$1") && shift ;;
  esac
done
set -- "${choose[@]}" # `source` without words of its own hands these over
set +u                # activate scripts and environment modules read unset variables
# shellcheck source=benchmark/env/activate.bash
source "$root/benchmark/env/activate.bash"
set -u
exec nlp-bench build "${choose[@]}" "${options[@]}"
