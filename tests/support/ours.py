"""Records as our own trainer prints them, and a run folder with five of them."""

from collections.abc import Callable
from pathlib import Path

from support.published import write_run

from nlp_bench.bundle.make import Made
from nlp_bench.train.logline import Interval, format_line

Bundle = Callable[..., Made]
"""Makes a bundle by its name, PATHs and options."""
SECONDS = (7.23104, 5.35513, 5.61918, 5.32907, 5.32472)
"""The published times with a digit more than the log prints."""


def line_of_ours(number: int, seconds: float) -> str:
    """Return record `number` of the run of `support.published`, 10 iterations each."""
    interval = Interval(
        iteration=10 * number, train_iters=50, consumed_samples=960 * number, elapsed_s=seconds, learning_rate=1e-3,
        global_batch_size=96, loss=7.0, loss_scale=1.0, grad_norm=1.0, num_skipped=0, num_nan=0, legacy_flops=2.819e17,
        model_flops=2.114e17, sequence_length=2048, num_gpus=384, peak_bytes=2**35,
        unix_time_s=1.8e9 + 10 * sum(SECONDS[:number]),
    )  # fmt: skip
    return f"[default3]: {format_line(interval).strip()}\n"


def log_of_ours() -> str:
    """Return a log of five records."""
    return "start\n" + "".join(line_of_ours(number, seconds) for number, seconds in enumerate(SECONDS, start=1))


def write_our_run(folder: Path) -> Path:
    """Write a finished run whose lines hold every field that the trainer prints."""
    write_run(folder)
    (folder / "job.out").write_text(log_of_ours())
    return folder
