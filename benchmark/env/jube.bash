# shellcheck shell=bash
# Find JUBE, or get it: sourced by benchmark/run.sh and tests/run.sh.

nlp_bench_find_jube() { # nlp_bench_find_jube ROOT: put a JUBE that starts on PATH
  local venv archive
  # shellcheck source=benchmark/env/python.bash
  source "$1/benchmark/env/python.bash"
  venv=$(nlp_bench_venv "$1") || return
  [[ ! -x $venv/bin/jube ]] || PATH=$PATH:$venv/bin
  if jube --version > /dev/null 2>&1; then return; fi
  if [[ $(id -u) == 0 ]] && command -v apt-get > /dev/null; then
    echo "nlp-bench: installing Debian's package jube" >&2
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y jube; } > /dev/null 2>&1 || true
    if jube --version > /dev/null 2>&1; then return; fi
  fi
  # JUBE is not on PyPI; this is GitHub's address of the archive of a tag.
  if command -v jube > /dev/null; then
    echo "nlp-bench: $(command -v jube) does not start (JUBE 2.5.1 needs Python 3.11 or older)" >&2
  fi
  archive=${NLP_BENCH_JUBE_ARCHIVE:-https://github.com/FZJ-JSC/JUBE/archive/refs/tags/REL-2.7.1.tar.gz}
  echo "nlp-bench: installing JUBE from $archive into $venv" >&2
  if PIP_USER=0 env -u PIP_CONSTRAINT -u PIP_TARGET -u PIP_PREFIX "$venv/bin/python" "$venv/bin/pip" install -q PyYAML "$archive" && PATH=$PATH:$venv/bin && jube --version > /dev/null 2>&1; then return; fi
  cat >&2 <<TEXT
nlp-bench: error: JUBE was not found and could not be installed. One of these helps:
  on Debian or Ubuntu with Python 3.11 or older: sudo apt-get install jube
  on an HPC system:                              module load JUBE
  elsewhere: download JUBE 2.7.1 (https://github.com/FZJ-JSC/JUBE, the source archive of the tag REL-2.7.1) and set
             NLP_BENCH_JUBE_ARCHIVE to the archive's path; 2.7.1 runs under Python 3.12 and later, too
  without JUBE:                                  nlp-bench submit, then nlp-bench report (see docs/running.md)
TEXT
  return 2
}
