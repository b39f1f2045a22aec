# shellcheck shell=bash
# Install what the tests need; then python, JUBE and Slurm are on PATH. Sourced by tests/run.sh and tests/soak/run.sh,
# which set `root` (the checkout) and stand in it. With `quick` set: the Python environment alone.
unset PYTHONDONTWRITEBYTECODE # the tests start some thousand processes, each of which would compile this checkout anew
export OPENBLAS_NUM_THREADS=1 # several tests run at once: threads of numpy's that wait for each other take the cores of the others
say() { echo "${0#"$root"/}: $*" >&2; }

need=()
if [[ -z ${quick:-} ]]; then
  command -v slurmctld > /dev/null && command -v slurmd > /dev/null || need+=(slurm-wlm)
  command -v munged > /dev/null || need+=(munge)
  command -v shellcheck > /dev/null || need+=(shellcheck)
  command -v jube > /dev/null || need+=(jube)
  command -v chromium > /dev/null || command -v google-chrome > /dev/null || need+=(chromium)
  command -v flock > /dev/null || need+=(util-linux)
fi
if ((${#need[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get > /dev/null; then
    say "installing ${need[*]}"
    apt-get update -q > /dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y "${need[@]}" > /dev/null
  else
    say "missing: ${need[*]}; install them first (Debian: sudo apt-get install ${need[*]})"
    exit 2
  fi
fi

NLP_BENCH_SYSTEM=local bash benchmark/env/setup_venv.sh --extra test
# shellcheck source=benchmark/env/python.bash
source benchmark/env/python.bash
if [[ -z ${quick:-} ]]; then
  # shellcheck source=benchmark/env/jube.bash
  source benchmark/env/jube.bash
  nlp_bench_find_jube "$root"
fi
bin=$(nlp_bench_venv "$root")/bin
export PATH=$bin:$PATH
