# shellcheck shell=bash
# Which Python: sourced by the scripts of this folder.

nlp_bench_venv() { # nlp_bench_venv ROOT: the folder of the virtual environment
  local venv=${NLP_BENCH_VENV:-$1/.venv}
  [[ $venv == /* ]] || {
    echo "nlp-bench: error: NLP_BENCH_VENV=$venv does not begin with /, so that each folder would have an environment of its own:" \
      "export NLP_BENCH_VENV=$(printf %q "$PWD/$venv")" >&2
    return 2
  }
  echo "${venv%"${venv##*[!/]}"}" # without the slash that a shell puts behind a folder when it completes its name
}

nlp_bench_made_as() { # nlp_bench_made_as VENV: the path that the scripts in its bin name
  # shellcheck disable=SC1091
  (source "$1/bin/activate" && echo "$VIRTUAL_ENV")
}

nlp_bench_closed() { # nlp_bench_closed PYTHON: print that its way is closed to this user; fails where it is not
  local real way
  real=$(readlink -m -- "$1" 2> /dev/null) way=$real
  until [[ -e ${way:=/} ]]; do way=${way%/*}; done
  [[ ! -x $way ]] || return
  echo "$1 leads to $real, which is closed to uid $UID: open the way to it (chmod go+x $(printf %q "$way"))," \
    "or make the environment with a Python that all may read (NLP_BENCH_PYTHON)"
}

nlp_bench_python() { # print the first Python 3.10 to 3.13 of PATH that can make virtual environments
  local python
  for python in "${NLP_BENCH_PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10; do
    if "$python" -I -c 'import sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
  echo "nlp-bench: error: no Python 3.10 to 3.13 with the module venv on PATH; load a Python module, install" \
    "python3 and python3-venv, or set NLP_BENCH_PYTHON" >&2
  return 2
}
