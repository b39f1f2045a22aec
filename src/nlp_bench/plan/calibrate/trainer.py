"""The trainer itself with layers so small that nothing but its own overhead is left: Python, megatron-core, launches."""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from nlp_bench.errors import NlpBenchError
from nlp_bench.files import temporary_folder
from nlp_bench.last_start import TIMED
from nlp_bench.machine.timing import summary
from nlp_bench.plan.calibrate.record import Facts, Measurement, measured

RUNS = ((2, 1), (8, 1), (2, 4), (8, 4))  # layers and micro-batches of each run: three unknowns (record.py, _overhead)
ITERATIONS, WARM_UP = 40, 10
MEAN_OF = 5
ENDING_S = 60
SMALL = (
    "--hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --position-embedding-type rope "
    "--attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --lr 1e-3 --log-interval 1 --mock-data --vocab-size 512"
)


def measure_trainer(device_kind: str, precision: str) -> list[Measurement]:
    """Run the trainer on one rank for each of RUNS, some 3 s each on a CPU; raises NlpBenchError with its last words where it does not train."""
    return [_run(layers, batches, device_kind, precision) for layers, batches in RUNS]


def _run(layers: int, batches: int, device_kind: str, precision: str) -> Measurement:
    words = [*SMALL.split(), "--num-layers", str(layers), "--global-batch-size", str(batches)]
    words += ["--train-iters", str(ITERATIONS), *([] if precision == "fp32" else [f"--{precision}"])]
    inherited = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device_kind == "cpu" else {}
    own = device_kind == "cpu" and os.environ.get("OMP_NUM_THREADS") == "1"
    command = [sys.executable, "-m", "nlp_bench.train", *words]
    environment = inherited | {"NLP_BENCH_ACCELERATOR": device_kind} | hidden
    with tempfile.TemporaryFile("w+", dir=temporary_folder()) as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment) as process:
            try:
                seconds = _seconds(process, own=own)
                process.wait(ENDING_S)
            finally:
                process.kill()  # an interruption must not leave it behind
        if not seconds:
            errors.seek(0)
            raise NlpBenchError(
                f"calibrate: the trainer ended with exit code {process.returncode}: {errors.read().strip()[-500:]}; "
                "try it alone with `nlp-bench submit --model tiny`, or leave it out with --no-trainer"
            )
    sizes = {"layers": layers, "microbatches": batches}
    return measured(Facts(kind="trainer", name="iteration", precision=precision, sizes=sizes), summary(seconds, 1))


def _seconds(process: "subprocess.Popen[bytes]", *, own: bool) -> list[float]:
    """Return the seconds of iterations after the warm-up, none where the training did not come to its end.

    By the log's clock, or of the process's `own` processor time the means of some iterations each.
    """
    logged, used = [], []
    for line in process.stdout or ():
        if found := TIMED.search(line):
            logged.append(float(found[3]))
            used.append(processor_seconds(process.pid))
            if int(found[1]) == ITERATIONS:
                break  # before the process has ended, while its processor time can be read
    if len(used) < ITERATIONS:
        return []
    if not own:
        return logged[WARM_UP:]
    # Lines are read a little late: an iteration's own time is not known, the mean of a few is.
    return [(used[end] - used[end - MEAN_OF]) / MEAN_OF for end in range(WARM_UP + MEAN_OF - 1, ITERATIONS, MEAN_OF)]


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process: the first numbers of its threads' schedstat, in ns (Linux, sched-stats.rst)."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9
