# shellcheck shell=bash
# source benchmark/env/activate.bash [--system NAME | --run RUN_JSON]
# Load the system's modules and variables, then the virtual environment. NAME is a file of benchmark/systems; without it,
# NLP_BENCH_SYSTEM or the machine we are on. Without words in a script, bash hands over the script's own: they are ignored.
if [ -z "${BASH_VERSION:-}" ]; then
  echo "nlp-bench: error: this shell is not bash: start bash, then source activate.bash" >&2
  return 2
fi
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  echo "nlp-bench: error: run like this it changes nothing in your shell; source it: source $0" >&2
  exit 2
fi

nlp_bench_activate() {
  local here root venv lines closed strict=$- status=0
  [[ $strict == *i* || ${1:-} =~ ^--(system|run)(=|$) ]] || set --
  here=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && builtin pwd) || return
  root=$(CDPATH='' builtin cd -- "$here/../.." && builtin pwd) || return
  lines=$(BASH_ENV='' bash "$here/nlp-bench" check --print environment "$@") || return
  if [[ $lines == "module "* ]] && ! command -v module > /dev/null; then
    echo "nlp-bench: error: the system file names modules, and this shell has no command module: take a login shell (bash -l)," \
      "or source the site's file for it first (/etc/profile.d)" >&2
    return 1
  fi
  set +u # the shell functions of environment modules read unset variables
  eval "$lines" || status=$?
  [[ $strict != *u* ]] || set -u
  ((status == 0)) || return "$status"
  # shellcheck source=benchmark/env/python.bash
  source "$here/python.bash"
  venv=$(nlp_bench_venv "$root") || return
  if [[ ! -e $venv/nlp-bench.key ]]; then
    echo "nlp-bench: error: $venv is not set up; run: bash benchmark/env/setup_venv.sh" >&2
    return 1
  fi
  # This checkout, whoever made the environment.
  [[ ${PYTHONPATH:-}: == "$root/src:"* ]] || PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH}
  export NLP_BENCH_ROOT=$root PYTHONPATH
  # shellcheck disable=SC1091
  source "$venv/bin/activate"
  if [[ ! $VIRTUAL_ENV -ef $venv ]]; then
    echo "nlp-bench: error: $venv was made as $VIRTUAL_ENV, and cannot be moved or copied: remove $(readlink -f -- "$venv")," \
      "then run: bash benchmark/env/setup_venv.sh" >&2
  elif closed=$(nlp_bench_closed "$VIRTUAL_ENV/bin/python"); then
    echo "nlp-bench: error: $closed" >&2
  elif [[ ! -x $VIRTUAL_ENV/bin/python ]]; then
    echo "nlp-bench: error: $VIRTUAL_ENV/bin/python is gone: its Python was removed or its module is not loaded;" \
      "load that module, or run: bash benchmark/env/setup_venv.sh" >&2
  else
    return 0
  fi
  deactivate
  return 1
}

nlp_bench_activate "$@"
