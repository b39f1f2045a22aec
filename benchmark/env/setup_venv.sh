#!/usr/bin/env bash
# Set up the virtual environment: torch for this machine, megatron-core and the rest, at pinned versions.
#   setup_venv.sh [--system NAME | --run RUN_JSON] [--extra test]
# .venv (or NLP_BENCH_VENV) is a link to .venv-KEY; the key says what is inside (Python, accelerator, versions), so that
# an environment is never changed under a job that waits or runs with it. A finished one is taken at once,
# also where another python3 has come first on PATH since; NLP_BENCH_PYTHON names the one that is wanted.
# shellcheck disable=SC2128,SC2317 # other shells have none, and a sourced script would change, or end, the user's own
[ "${BASH_SOURCE:-}" = "$0" ] || { echo "nlp-bench: error: run it with bash: bash ${BASH_SOURCE:-$0}" >&2; return 2 2> /dev/null || exit 2; }
set -euo pipefail
export PIP_USER=0 # a pip.conf that says so ("user = true") lets no pip install into a virtual environment
unset PIP_CONSTRAINT PIP_TARGET PIP_PREFIX # another torch, which an image pins (NGC's); a place that is not this environment
unset BASH_ENV # this bash has read it; what it prints in those below would be taken for their answers
export PYTHONSAFEPATH=1 # Python 3.11: import nothing from the current folder; -I and the path in place of -m are for 3.10
here=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && builtin pwd)
root=$(CDPATH='' builtin cd -- "$here/../.." && builtin pwd)
[[ -e $here/python.bash ]] || { echo "nlp-bench: error: $0 is a copy without its checkout, as sbatch and qsub make of a script: hand over one that says: bash CHECKOUT/benchmark/env/setup_venv.sh" >&2; exit 2; }
# shellcheck source=benchmark/env/python.bash
source "$here/python.bash"

say() { echo "nlp-bench: $*" >&2; }

command -v flock > /dev/null || { say "error: flock is missing on PATH: install util-linux"; exit 1; }

extra='' choose=()
while (($#)); do
  case $1 in
    --system | --run) choose=("$1" "${2:?$1 needs a value}") && shift 2 ;;
    --extra) extra=${2:?--extra NAME} && shift 2 ;;
    *) echo "usage: setup_venv.sh [--system NAME | --run RUN_JSON] [--extra test]" >&2; exit 2 ;;
  esac
done

machine=$(bash "$here/nlp-bench" check --print machine "${choose[@]}")
{ read -r accelerator; read -r site_packages; software=$(cat); } <<< "$machine"
set +u # the shell functions of environment modules read unset variables
eval "$software"
set -u

link=$(nlp_bench_venv "$root")
shared=$here/packages.pth # of `nlp-bench init`: where the environment that ran it has torch, megatron-core and the rest
key() { # key PYTHON: what its environment is made of: packages by pyproject.toml (not its settings of tools), pins, compiled code
  {
    "$1" -I -c 'import sys; print(sys.version)'
    echo "$accelerator $site_packages"
    cat "$here/constraints.txt"
    [[ ! -e $shared ]] || cat "$shared"
    sed '/^\[tool/,$d' "$root/pyproject.toml"
    cat "$root/setup.py" "$root/src/nlp_bench/logs/scan.c"
  } | sha256sum | cut -c 1-12
}
if [[ -e $shared ]]; then
  python=$(sed -n 's/^# python: //p' "$shared")
  "$python" -c 'import sys; from importlib.util import find_spec as f; sys.exit(not (f("torch") and f("megatron.core")))' 2> /dev/null ||
    { say "error: $python, whose packages $shared shares, no longer has torch and megatron-core; remove $shared for an environment of its own"; exit 1; }
elif [[ -z ${NLP_BENCH_PYTHON:-} && $site_packages != yes && -e $link/nlp-bench.key &&
  $link -ef $link-$(key "$link/bin/python" 2> /dev/null) ]]; then # a shell with another Python (conda's) needs no second one
  python=$link/bin/python
  ! found=$(nlp_bench_python 2> /dev/null) || [[ $link -ef $link-$(key "$found") ]] ||
    say "keeping $link of $("$python" -V), though $found comes first on PATH now; NLP_BENCH_PYTHON=$(printf %q "$found") makes another"
else
  python=$(nlp_bench_python)
fi
require_own() { # require_own PATH: nothing is there, or a link of ours, to a folder named after it
  [[ ! -e $1 && ! -L $1 ]] || { [[ -L $1 ]] && [[ $(readlink -- "$1") =~ ^"$(basename -- "$link")"-[0-9a-f]{12}$ ]]; } ||
    { say "error: $1 is not this script's link to an environment; move it away, or set NLP_BENCH_VENV to a new path"; exit 1; }
}
require_own "$link"
require_own "$link.new"
folder=$(dirname -- "$link")
mkdir -p "$folder"
"$python" -I -c 'import os, sys; sys.exit(os.statvfs(sys.argv[1]).f_flag & getattr(os, "ST_NOEXEC", 0))' "$folder" ||
  { say "error: $folder is mounted noexec, where no package can be loaded: put the checkout, or NLP_BENCH_VENV, elsewhere"; exit 1; }
wanted=$(key "$python")
venv=$link-$wanted

is_ready() { [[ -e $venv/nlp-bench.$1 ]]; } # is_ready key, or the name of an extra

mark() { echo "$wanted" > "$venv/nlp-bench.$1"; } # the last step: without its mark an environment is not finished

foreign() { # foreign PATH: of a colleague who shares this checkout
  say "error: $1 belongs to $(stat -c %U -- "$1") and is closed to you, or not finished: let its owner repeat this command and type" \
    "chmod -R go+rX $(printf %q "$link")*; or set NLP_BENCH_VENV to a path of your own"
  exit 1
}

pip() { # pip WORD...: what it says of a fault stays in pip.err, where `nlp-bench doctor` looks
  local status=0
  # Not the script itself, whose first line names the Python of the path that the environment was made as. Not -m, as above.
  "$venv/bin/python" "$venv/bin/pip" "$@" 2> "$venv/pip.err" || status=$?
  cat -- "$venv/pip.err" >&2
  return "$status"
}

unfinished() { # unfinished WHAT: pip could not install it
  say "error: pip could not install $1 into $venv, whose last words stand above; it is not used before it is finished"
  say "is a package index in reach? behind a proxy set https_proxy (and PIP_CERT=FILE.pem where a certificate is refused), with a mirror set PIP_INDEX_URL; without a network" \
    "\`pip download\` the packages elsewhere and set PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER; then repeat the same command"
  exit 1
}

install() { # install EXTRAS: this checkout with its packages, at the pinned versions
  local pins=$here/constraints.txt
  if [[ $site_packages == yes ]]; then # the site's own builds stay
    pins=$venv/constraints.txt
    grep -vE '^(torch|numpy|pandas|matplotlib)==' "$here/constraints.txt" > "$pins"
  fi
  pip install -q --constraint "$pins" --editable "${root}[$1]" || unfinished "the packages of pyproject.toml"
}

changed() { # the pins, as words for pip, of packages of which pip has been asked for another version by hand since
  [[ $site_packages != yes && ! -e $shared ]] || return 0
  NLP_BENCH_ROOT=$root PYTHONPATH=$root/src "$venv/bin/python" -c 'import sys; sys.path[:] = filter(None, sys.path)
from nlp_bench.build.environment import put_back; print(*put_back())' |
    if [[ $accelerator == cuda ]]; then cat; else sed 's/\btorch==[^ ]*/&+cpu/'; fi
}

share() { # the packages of the other environment, and a command of this one
  cp -- "$shared" "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
  printf '#!/bin/sh\nexec "%s" -m nlp_bench "$@"\n' "$venv/bin/python" > "$venv/bin/nlp-bench"
  chmod +x "$venv/bin/nlp-bench"
}

install_torch() {
  local torch
  torch=$(grep '^torch==' "$here/constraints.txt")
  if [[ $site_packages == yes ]]; then
    "$venv/bin/python" -c 'import sys; sys.path[:] = filter(None, sys.path); import torch' || { say "error: system_site_packages, but the modules hold no torch"; exit 1; }
  elif [[ $accelerator == cuda ]]; then
    pip install -q "$torch" || unfinished "$torch"
  # The CPU build carries a local version; a plain torch would bring gigabytes of CUDA libraries.
  elif ! pip install -q "$torch+cpu"; then
    say "pip found no CPU build of $torch; asking uv, which knows PyTorch's own index"
    pip install -q uv || unfinished "$torch+cpu, nor uv"
    "$venv/bin/uv" pip install -q --python "$venv/bin/python" --torch-backend cpu "$torch" || unfinished "$torch by uv"
  fi
}

check_torch() { # a CPU build on a GPU machine would train on the CPU
  [[ $accelerator != cuda ]] || "$venv/bin/python" -c 'import sys; sys.path[:] = filter(None, sys.path); import torch; sys.exit(torch.version.cuda is None)' ||
    { say "error: $accelerator was asked for, but torch in $venv is a CPU build"; exit 1; }
}

# Another user's finished environment is used as it is: who may only read its lock waits on it just so.
if [[ -r $link.lock && ! -w $link.lock ]]; then exec 9< "$link.lock"; elif ! { exec 9>> "$link.lock"; } 2> /dev/null; then
  if [[ -e $link.lock ]]; then foreign "$link.lock"; else foreign "$folder"; fi
fi
flock --wait 3 9 || { # two JUBE points, or two people, never build one environment at the same time
  say "waiting for the process that holds $link.lock: it sets the environment up, which takes minutes, or was stopped (Ctrl-Z: fg)"
  flock 9
}
if is_ready key; then
  made=$(nlp_bench_made_as "$venv" 2> /dev/null) || made=''
  [[ ! -d $made || $made -ef $venv ]] || { # not made anew here: a job of the copied checkout may run with it
    say "error: $venv is a copy of $made, and its commands would change that one; when no job runs with the copy:" \
      "rm -r $(printf %q "$venv"), then repeat the same command"
    exit 1
  }
else
  [[ ! -e $venv || -w $venv ]] || foreign "$venv"
  [[ -e $venv || -w $folder ]] ||
    { say "error: $folder cannot be written, and has no environment of $python yet: set NLP_BENCH_VENV to a path of your own"; exit 1; }
  say "setting up $venv for $accelerator (a few minutes, once)"
  options=(); [[ $site_packages != yes ]] || options=(--system-site-packages)
  "$python" -I -m venv --clear "${options[@]}" "$venv" || {
    { ln -s . "$venv.$$" && rm "$venv.$$"; } 2> /dev/null ||
      { say "error: $folder takes no symbolic links (CIFS, exFAT): set NLP_BENCH_VENV to a folder of another file system"; exit 1; }
    say "error: $python made no environment in $venv; make room, install python3-venv, or set NLP_BENCH_PYTHON"
    exit 1
  }
  "$venv/bin/python" -I -c '' 2> /dev/null ||
    { say "error: $venv/bin/python does not start here: $python may be a wrapper whose Python lies in a container;" \
      "set NLP_BENCH_PYTHON to a Python of this machine, or work inside the image"; exit 1; }
  if [[ -e $shared ]]; then
    say "with the packages of $python"
    share
  else
    say "1/2 torch"
    install_torch
    say "2/2 megatron-core and the rest"
    install train,report
  fi
  check_torch
  mark key
fi
if [[ -n $extra ]] && ! is_ready "$extra"; then
  install "train,report,$extra"
  mark "$extra"
fi
others=$(changed 2> /dev/null) || others=''
[[ -z $others ]] || say "warning: $venv has other versions than the pinned ones, as after a pip install by hand; put them back, when no job runs with it:" \
  "$(printf %q "$venv")/bin/python -m pip install $others"
# The reader of logs beside the sources of this checkout, which may share its environment with another one; without a compiler Python reads.
PYTHONPATH=$root/src "$venv/bin/python" "$root/src/nlp_bench/__main__.py" build --scanner > /dev/null ||
  say "the compiled reader of logs was not built: large logs are read more slowly"
require_own "$link" # it took minutes
require_own "$link.new"
if [[ $(readlink -- "$link") != "$(basename -- "$venv")" ]]; then
  ln -sfn -- "$(basename -- "$venv")" "$link.new"
  mv -T -- "$link.new" "$link"
  older=()
  for one in "$link"-????????????; do [[ ! -d $one || $one == "$venv" ]] || older+=("$one"); done
  ((${#older[@]} == 0)) ||
    say "the environments of before stay for jobs that wait or run with them; when there are none:$(printf ' %q' rm -r "${older[@]}")"
fi
say "$link is ready"
