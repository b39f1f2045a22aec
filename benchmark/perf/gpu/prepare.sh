#!/usr/bin/env bash
# Collect what a GPU machine without a network needs beside this checkout and torch, and print its size.
#   bash benchmark/perf/gpu/prepare.sh DIR        then there: pip install --no-index --no-deps --target SITE DIR/*.whl
set -euo pipefail
here=$(CDPATH='' builtin cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && builtin pwd)
case ${1:-} in '' | -*) sed -n '2,3s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;; esac
version=$(sed -n 's/^megatron-core==\([^ ;]*\).*/\1/p' "$here/../../env/constraints.txt")
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
  --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --dest "$1" "megatron-core==$version" six regex scipy  # for Megatron-LM itself, and for plan calibrate
du --apparent-size --total --human-readable "$1"/*.whl
