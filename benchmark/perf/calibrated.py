# ruff: noqa: INP001  # scripts, not a package
"""Does a calibrated planner know this machine? Calibrates the CPU, predicts trainings, runs them, prints both side by side.

    python benchmark/perf/calibrated.py --folder /tmp/calibrated                  (about 10 minutes on two cores)
    python benchmark/perf/calibrated.py --folder /tmp/calibrated --keep           (predict again what lies there)

Each rank has one thread. A training on one rank is timed by the processor time of its process, as calibrate does it, so that other
processes on the machine do not count; two ranks wait for each other, so theirs is the wall clock of the log, and needs an idle machine.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TINY: dict[str, Any] = {"model": "tiny", "micro_batch_size": 2, "gradient_accumulation_steps": 2}
RUNS: dict[str, tuple[int, dict[str, Any]]] = {
    "tiny": (1, TINY),
    "tiny, micro batch 8": (1, {"model": "tiny", "micro_batch_size": 8, "gradient_accumulation_steps": 1}),
    "tiny, 8 layers of 512": (1, TINY | {"hidden_size": 512, "num_layers": 8}),
    "tiny, sequence 1024": (1, TINY | {"sequence_length": 1024, "micro_batch_size": 1}),
    "tiny, GAS 8": (1, {"model": "tiny", "micro_batch_size": 1, "gradient_accumulation_steps": 8}),
    "126M": (1, {"model": "gpt_126m", "sequence_length": 256, "micro_batch_size": 1, "gradient_accumulation_steps": 1}),
    "126M without dropout": (
        1,
        {"model": "gpt_126m*", "sequence_length": 256, "micro_batch_size": 1, "gradient_accumulation_steps": 1},
    ),
    "126M without dropout, GAS 2": (
        1,
        {"model": "gpt_126m*", "sequence_length": 128, "micro_batch_size": 1, "gradient_accumulation_steps": 2},
    ),
    "tiny, DP 2": (2, TINY),
    "tiny, TP 2": (2, TINY | {"tensor": 2}),
    "tiny, PP 2": (2, TINY | {"pipeline": 2, "gradient_accumulation_steps": 4}),
}
"""Ranks, and what differs from the model file; a star: without dropout, which no fused attention kernel of torch has on CPUs."""
ITERATIONS, WARM_UP = 14, 4
HERE = {"system": "local", "launcher": "local", "iterations": ITERATIONS, "log_interval": 1, "data_path": "mock"}
LINE = re.compile(r"iteration +(\d+)/.*elapsed time per iteration \(s\): ([0-9.]+)")


def main() -> int:
    """Calibrate, run, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where constants and measured times lie")
    parser.add_argument("--minutes", default="2", help="of each of the two calibrations")
    parser.add_argument(
        "--ranks", type=int, nargs="*", default=[1, 2], choices=[1, 2], help="trainings on so many ranks"
    )
    parser.add_argument("--keep", action="store_true", help="measure nothing that lies there already")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [name for name, (ranks, _) in RUNS.items() if ranks in options.ranks]
    for ranks in options.ranks:
        calibrate(folder, ranks, options.minutes, keep=options.keep)
    show([row(folder, name, keep=options.keep) for name in chosen])
    return 0


def constants(folder: Path, ranks: int) -> Path:
    """Return the file of constants for so many ranks."""
    return folder / ("one.toml" if ranks == 1 else "two.toml")


def calibrate(folder: Path, ranks: int, minutes: str, *, keep: bool) -> None:
    """Calibrate one rank, or two at the same time."""
    output = constants(folder, ranks)
    words = ["--minutes", minutes, "--device", "cpu", "--precision", "fp32"]
    if keep and output.with_suffix(".json").exists():
        words, ranks = ["--from", str(output.with_suffix(".json"))], 1
    command = [*python(ranks), "-m", "nlp_bench", "plan", "calibrate", *words, "--output", str(output)]
    with output.with_suffix(".log").open("w") as stream:
        subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, check=True, env=environment())


def python(ranks: int) -> list[str]:
    """Return the beginning of a command on so many ranks."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    return [sys.executable, *torchrun]


def environment() -> dict[str, str]:
    """Return the variables of a process with one thread and without a GPU."""
    return os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "NLP_BENCH_ACCELERATOR": "cpu"}


def resolved(name: str) -> Any:
    """Return the run as nlp-bench resolves it."""
    from nlp_bench.config.request import Request  # noqa: PLC0415  # after --help
    from nlp_bench.config.resolve import resolve  # noqa: PLC0415  # likewise

    ranks, changes = RUNS[name]
    with tempfile.TemporaryDirectory() as place:
        model = changes["model"]
        if model.endswith("*"):
            text = (Path(__file__).parents[1] / "models" / f"{model[:-1]}.toml").read_text()
            file = Path(place, f"{model[:-1]}.toml")
            file.write_text(re.sub(r"^(attention|hidden)_dropout = .*$", r"\1_dropout = 0.0", text, flags=re.MULTILINE))
            model = str(file)
        wanted = {**HERE, "nodes": 1, "gpus_per_node": ranks, **changes, "model": model}
        return resolve(Request(**wanted), ask_scheduler=False)


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Train; return seconds per iteration by the log's clock (median) and by the processor's (one rank)."""
    from nlp_bench.launch.arguments import training_arguments  # noqa: PLC0415  # as above
    from nlp_bench.plan.calibrate.trainer import processor_seconds  # noqa: PLC0415  # likewise

    command = [*python(RUNS[name][0]), "-m", "nlp_bench.train", *training_arguments(resolved(name))]
    used: dict[int, float] = {}
    elapsed: dict[int, float] = {}
    with (folder / "train.err").open("w") as errors, tempfile.TemporaryDirectory() as place:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(), cwd=place
        )
        for line in process.stdout or ():
            if found := LINE.search(line):
                used[int(found[1])], elapsed[int(found[1])] = processor_seconds(process.pid), float(found[2])
        if process.wait() or ITERATIONS not in used:
            raise SystemExit(f"{name}: exit code {process.returncode}\n{(folder / 'train.err').read_text()[-2000:]}")
    wall = statistics.median(list(elapsed.values())[WARM_UP:])
    own = (used[ITERATIONS] - used[WARM_UP]) / (ITERATIONS - WARM_UP)
    return {"wall": wall, "processor": own if RUNS[name][0] == 1 else None, "load": os.getloadavg()[0]}


def row(folder: Path, name: str, *, keep: bool) -> dict[str, Any]:
    """Return what was measured and predicted of one run, in seconds per iteration."""
    from nlp_bench.plan.constants import read_constants  # noqa: PLC0415  # as above
    from nlp_bench.plan.forecast import forecast  # noqa: PLC0415  # likewise
    from nlp_bench.plan.problem import configuration_of  # noqa: PLC0415  # likewise

    file = folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.json"
    if not (keep and file.exists()):
        file.write_text(json.dumps(measured(name, folder)))
    known = read_constants(constants(folder, RUNS[name][0]))
    found = forecast(configuration_of(resolved(name), known), known)
    predicted = float(found.seconds.total[0])
    parts = {part: float(seconds.reshape(-1)[0]) / predicted for part, seconds in found.seconds.parts.items()}
    mostly = sorted(parts.items(), key=lambda item: -item[1])[:3]
    return {
        "name": name,
        "ranks": RUNS[name][0],
        "predicted": predicted,
        "mostly": mostly,
        **json.loads(file.read_text()),
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {os.cpu_count()} cores\n")
    print("| training | ranks | wall s | processor s | predicted s | error | load | mostly |")
    print("|:--|--:|--:|--:|--:|--:|--:|:--|")
    errors = []
    for one in rows:
        own = f"{one['processor']:.4f}" if one["processor"] else ""
        errors.append(one["predicted"] / (one["processor"] or one["wall"]) - 1)
        mostly = ", ".join(f"{name} {share:.0%}" for name, share in one["mostly"])
        print(
            f"| {one['name']} | {one['ranks']} | {one['wall']:.4f} | {own} | {one['predicted']:.4f} | {errors[-1]:+.1%} | "
            f"{one['load']:.1f} | {mostly} |"
        )
    sizes = [abs(error) for error in errors]
    print(f"\nmedian error {statistics.median(sizes):.1%}, largest {max(sizes):.1%}, of {len(rows)} trainings")


if __name__ == "__main__":
    raise SystemExit(main())
