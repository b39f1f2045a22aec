# ruff: noqa: INP001  # scripts, not a package
"""How long is it from the start of torchrun to the end of the first iteration on CPU ranks? Prints what takes the time.

    python benchmark/perf/start_up.py                              (8 ranks three times: a minute on 2 idle cores)
    python benchmark/perf/start_up.py --ranks 2 --repeat 1         (a smoke test)

Seconds include what else the machine does; CPU seconds, of all processes together, do not: divided by the cores they are the
least that an idle machine needs.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import time

from trainer_vs_torch import positive

MODEL = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
    "--position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --train-iters 1 "
    "--lr 1e-2 --mock-data --vocab-size 512"
)
LAUNCHER = "-m torch.distributed.run --standalone --nproc-per-node"
FACT = re.compile(r"start-up: ([0-9.]+) s .*?\((.*?)\); torchrun was started ([0-9.]+) s earlier")
GOAL_S = 20.0
ON_CPU = (
    "from nlp_bench.train import world; from nlp_bench.train.layout import Rank; "
    "world.pick_device(Rank(rank=0, world_size=1, local_rank=0))"
)
IMPORTS = {
    "python": "pass",
    "+ torch": "import torch",
    "+ torch.distributed.tensor": "import torch.distributed.tensor",
    "+ megatron.core": ON_CPU,
    "+ the trainer": f"{ON_CPU}; import nlp_bench.train.loop",
}


def main() -> int:
    """Measure; return 0 when the best start of all is within the goal, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=positive, default=8)
    parser.add_argument("--repeat", type=positive, default=3, help="the best of so many")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, CPU, {cores} cores, Python {sys.version.split()[0]}\n")
    show_imports(options.repeat)
    print(
        "\n| ranks | s to the end of the first iteration | CPU s of all processes | CPU s / cores |\n|--:|--:|--:|--:|"
    )
    best_s = min(show_start(options.ranks, cores) for _ in range(options.repeat))
    return int(best_s > GOAL_S)


def show_imports(repeat: int) -> None:
    """Print the CPU seconds of a process that imports what a rank imports, one thing more in each row."""
    print("| imported | CPU s |\n|:--|--:|")
    for name, code in IMPORTS.items():
        command = [sys.executable, "-W", "ignore", "-c", code]
        print(f"| {name} | {min(cpu_seconds(command)[0] for _ in range(repeat)):.2f} |")


def show_start(ranks: int, cores: int) -> float:
    """Start the ranks, print a row, return the seconds to the end of their first iteration."""
    words = f"{LAUNCHER} {ranks} -m nlp_bench.train {MODEL} --global-batch-size {ranks}"
    cpu_s, text = cpu_seconds([sys.executable, *words.split()])
    found = FACT.search(text)
    if not found:
        raise SystemExit(f"no start-up in the log of the ranks:\n{text}")
    total_s = float(found[1]) + float(found[3])
    print(
        f"| {ranks} | {total_s:.1f} (torchrun {found[3]}, {found[2]}) | {cpu_s:.1f} | {cpu_s / cores:.1f} |", flush=True
    )
    return total_s


def cpu_seconds(command: list[str]) -> tuple[float, str]:
    """Run `command`; return the processor time of it and its children, and its standard output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    answer = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if answer.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {answer.returncode}:\n{answer.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, answer.stdout


if __name__ == "__main__":
    sys.exit(main())
