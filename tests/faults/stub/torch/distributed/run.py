"""A torchrun that prints the lines of our trainer and ends as NLP_BENCH_STUB says, in a fraction of a second.

ok         all iterations, status 0
exit N     half of them, then status N
late N     all of them, then status N
hang       half of them, then nothing for ten minutes
again      hang at the first start of the job, ok after Slurm has started it anew
second     hang in the first job of the folder, ok in another
slow S     all of them, S seconds apart
odd        all of them, between bytes that are no text, NUL, colours and bars
memory     half of them, then 300 MB
short      half of them, status 0
fill       half of them, then a file in the run's folder that takes all room of its disk, then the others
other N    on the first node status N after a second, on the others hang

Where NLP_BENCH_ORACLE names a file, what really happened is told there, beside the run's folder (tests/soak/slurm_jobs.py).
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

signal.signal(signal.SIGINT, signal.SIG_DFL)  # interrupted in the imports below, it prints no traceback

from nlp_bench import seal  # noqa: E402
from nlp_bench.train.logline import Interval, format_line  # noqa: E402

SEAL = seal.LogSeal()
STARTED_S = time.time()

ODD = b"\xff\xfe broken \x00 bytes \xc3\n\r 10%|#         | 10/100 [00:10<01:30]\r\x1b[33mWARNING\x1b[0m \xe2\x82\n\x1b[36m"
"""Ends in a colour: the trainer's line follows on the same line."""


def value(name: str) -> str:
    """Return the trainer's or torchrun's argument `name`."""
    return sys.argv[sys.argv.index(name) + 1]


def line(iteration: int) -> str:
    """Return the trainer's line of one iteration."""
    batch, elapsed_s = int(value("--global-batch-size")), 0.1 + os.getpid() % 97 / 1e4
    interval = Interval(
        iteration=iteration, train_iters=int(value("--train-iters")), consumed_samples=batch * iteration, elapsed_s=elapsed_s,
        learning_rate=1e-3, global_batch_size=batch, loss=7.0 - iteration / 100, loss_scale=1.0, grad_norm=1.0, num_skipped=0,
        num_nan=0, legacy_flops=1e9, model_flops=1e9, sequence_length=int(value("--seq-length")), num_gpus=1, peak_bytes=2**20,
        unix_time_s=STARTED_S + iteration * elapsed_s,  # its iterations take no time: the clock of the lines is that of their times
    )  # fmt: skip
    return format_line(interval)


def say(text: str) -> None:
    """Print a line as the trainer does, seen through torchrun."""
    SEAL.take(text)
    print(f"[default0]:{text}", flush=True)


def tell(word: str) -> None:
    """Add one line to the oracle: word, job, start, time in seconds."""
    if path := os.environ.get("NLP_BENCH_ORACLE"):
        job, start = os.environ.get("SLURM_JOB_ID", "0"), os.environ.get("SLURM_RESTART_COUNT", "0")
        with Path(path).open("a", encoding="utf-8") as oracle:
            oracle.write(f"{word} {job} {start} {time.time():.3f}\n")


def mode_and_number() -> tuple[str, str]:
    """Return what to do in this start of this job, on this node."""
    mode, _, number = os.environ.get("NLP_BENCH_STUB", "ok").partition(" ")
    if mode == "again":
        mode = "ok" if os.environ.get("SLURM_RESTART_COUNT") else "hang"
    if mode == "second":
        mode = "ok" if "nlp-bench: attempt 2" in Path("job.out").read_text(errors="replace") else "hang"
    if mode == "other" and os.environ.get("SLURM_NODEID") != "0":
        mode = "hang"
    return mode, number


def iterate(mode: str, iterations: int, pause_s: float) -> None:
    """Print the lines of all iterations, or of half of them."""
    last = iterations if mode in {"ok", "late", "slow", "fill", "odd"} else iterations // 2
    for iteration in range(1, last + 1):
        if mode == "fill" and iteration == 1 + iterations // 2:
            with contextlib.suppress(OSError), Path("filling").open("wb", buffering=0) as stream:
                while stream.write(b"\0" * 4096):
                    pass
        if mode == "odd":
            sys.stdout.buffer.write(ODD)
        say(line(iteration))
        if iteration == iterations:
            tell("end")
        time.sleep(pause_s)


def main() -> int:
    """Train, so to speak; return the exit status."""
    mode, number = mode_and_number()
    tell("begin")
    say(seal.opening_line(os.environ.get(seal.VARIABLE), None))
    iterate(mode, int(value("--train-iters")), float(number) if mode == "slow" else 0)
    if mode not in {"hang", "exit", "memory"}:
        say(SEAL.closing_line())
    if mode == "other":
        time.sleep(1)
    held = b"x" * (300 << 20) if mode == "memory" else b""
    if mode in {"hang", "memory"}:
        time.sleep(600)
    return int(number) if mode in {"exit", "late", "other"} else len(held) * 0


if __name__ == "__main__":
    sys.exit(main())
