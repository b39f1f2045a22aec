#!/usr/bin/env bash
# Set up the virtual environment (.venv, or NLP_BENCH_VENV): torch for this machine, megatron-core and the rest.
#   setup_venv.sh [--system NAME | --run RUN_JSON] [--extra test]
# A finished environment with the same key (Python, accelerator, pinned versions) is left as it is, in a moment.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=benchmark/env/python.bash
source "$here/python.bash"

system='' extra='' run=''
while (($#)); do
  case $1 in
    --system) system=${2:?--system NAME} && shift 2 ;;
    --run) run=${2:?--run RUN_JSON} && shift 2 ;;
    --extra) extra=${2:?--extra NAME} && shift 2 ;;
    *) echo "usage: setup_venv.sh [--system NAME | --run RUN_JSON] [--extra test]" >&2; exit 2 ;;
  esac
done

choose=(); [[ -z $system ]] || choose=(--system "$system")
[[ -z $run ]] || choose=(--run "$run")
software=$("$here/nlp-bench" check --print environment "${choose[@]}")
accelerator=$("$here/nlp-bench" check --print accelerator "${choose[@]}")
site_packages=$("$here/nlp-bench" check --print site-packages "${choose[@]}")
set +u # the shell functions of environment modules read unset variables
eval "$software"
set -u

python=$(nlp_bench_python)
venv=$(nlp_bench_venv "$root")
mkdir -p "$(dirname -- "$venv")"
key() { # what the environment is made of: packages by pyproject.toml (not its settings of tools) and the pins
  "$python" -c 'import sys; print(sys.version)'
  echo "$accelerator $site_packages"
  cat "$here/constraints.txt"
  sed '/^\[tool/,$d' "$root/pyproject.toml"
}
wanted=$(key | sha256sum | cut -d ' ' -f 1)

is_ready() { [[ $(cat "$venv/nlp-bench.$1" 2> /dev/null) == "$wanted" ]]; } # is_ready key, or the name of an extra

install() { # install EXTRAS: this checkout with its packages, at the pinned versions
  "$venv/bin/pip" install -q --constraint "$here/constraints.txt" --editable "${root}[$1]"
}

mark() { # mark key|EXTRA: written whole, after the work
  echo "$wanted" > "$venv/nlp-bench.$1.new"
  mv "$venv/nlp-bench.$1.new" "$venv/nlp-bench.$1"
}

install_torch() {
  local torch
  torch=$(grep '^torch==' "$here/constraints.txt")
  if [[ $site_packages == yes ]]; then
    "$venv/bin/python" -c 'import torch' && return
  fi
  if [[ $accelerator == cuda ]]; then
    "$venv/bin/pip" install -q "$torch"
  # The CPU build carries a local version; a plain torch would bring gigabytes of CUDA libraries.
  elif ! "$venv/bin/pip" install -q "$torch+cpu" 2> "$venv/pip.err"; then
    echo "nlp-bench: no CPU build of $torch in pip's own index; asking uv, which knows PyTorch's" >&2
    "$venv/bin/pip" install -q uv
    "$venv/bin/uv" pip install -q --python "$venv/bin/python" --torch-backend cpu "$torch"
  fi
}

exec 9> "$venv.lock"
flock 9 # two JUBE points, or two people, never build one environment at the same time
if ! is_ready key; then
  echo "nlp-bench: setting up $venv for $accelerator (a few minutes, once)" >&2
  rm -f "$venv/nlp-bench.key"
  options=(); [[ $site_packages != yes ]] || options=(--system-site-packages)
  "$python" -m venv --clear "${options[@]}" "$venv"
  echo "nlp-bench: 1/2 torch" >&2
  install_torch
  echo "nlp-bench: 2/2 megatron-core and the rest" >&2
  install train,report
  mark key
fi
if [[ -n $extra ]] && ! is_ready "$extra"; then
  install "train,report,$extra"
  mark "$extra"
fi
echo "nlp-bench: $venv is ready" >&2
