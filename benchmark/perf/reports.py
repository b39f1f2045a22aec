# ruff: noqa: INP001  # scripts, not a package
"""How long do reports take? A run of a million records, 10 000 run folders, the HTML page of a sweep; prints a table.

    python benchmark/perf/reports.py [--runs 10000] [--records 1000000] [--page 500] [--folder /tmp]

The rival of the 10 000 folders is what the old benchmark does with a log: one regular expression for its elapsed times, and their
mean; no window, no interval, no outcome. Each figure is of one process and of its wall time; peak memory is of that process.
"""

import argparse
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ELAPSED = re.compile(r"elapsed time per iteration \(s\):\s+([0-9.]+)")


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="run folders of one report (default 10000)")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of one run (default 1000000)")
    parser.add_argument("--page", type=int, default=500, help="runs on one HTML page (default 500)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the runs are written")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}\n")  # noqa: DTZ011  # the day here
    print("| what | s | peak MB | size |\n|:--|--:|--:|--:|")
    _row(f"measure a run of {options.records} records", *in_child(lambda: measure(options.records)))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        size = write_runs(folder, options.runs)
        print(f"| ({options.runs} run folders, {size // options.runs} bytes of log each) |  |  | {size / 1e6:.0f} MB |")
        _row(f"report {options.runs} run folders as CSV", *in_child(lambda: report(folder, "csv")))
        _row("the rival: a regular expression and a mean", *in_child(lambda: rival(folder)))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_runs(folder, options.page)
        _row(f"HTML page of {options.page} runs", *in_child(lambda: report(folder, "html")))
    return 0


def _row(what: str, seconds: float, peak_bytes: int, size: int) -> None:
    print(f"| {what} | {seconds:.2f} | {peak_bytes / 1e6:.0f} | {f'{size / 1e6:.2f} MB' if size else ''} |", flush=True)


def in_child(work: Callable[[], int]) -> tuple[float, int, int]:
    """Return wall seconds, peak bytes and the result of `work`, in a process of its own."""
    import multiprocessing  # noqa: PLC0415

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        begin_s = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - begin_s
        usage = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        sender.send((seconds, usage * 1024, result))

    process = context.Process(target=run)
    process.start()
    found: tuple[float, int, int] = receiver.recv()
    process.join()
    return found


def measure(number: int) -> int:
    """Measure a run of `number` records that are in memory already."""
    import numpy as np  # noqa: PLC0415

    from nlp_bench.logs.record import Attempt, Records  # noqa: PLC0415
    from nlp_bench.measure.sizes import Overrides, sizes_of  # noqa: PLC0415
    from nlp_bench.measure.throughput import measure_records  # noqa: PLC0415
    from nlp_bench.measure.window import LogConventions  # noqa: PLC0415

    times = 5 + 0.1 * np.random.default_rng(1).standard_normal(number)
    columns = {"iteration": np.arange(1.0, number + 1), "elapsed_s": times, "global_batch_size": np.full(number, 96.0)}
    places = np.arange(number)
    attempt = Attempt(records=Records(columns, places, places, np.ones(number, dtype=np.bool_)))
    measure_records(attempt.records, sizes_of(attempt, Overrides(sequence_length=2048)), LogConventions(log_interval=1))
    return 0


def report(folder: Path, form: str) -> int:
    """Run the command; return the bytes that it printed."""
    command = [sys.executable, "-m", "nlp_bench", "report", str(folder), "--format", form]
    return len(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def rival(folder: Path) -> int:
    """Read every log with one regular expression."""
    for path in folder.glob("*/job.out"):
        times = [float(text) for text in ELAPSED.findall(path.read_text())]
        _ = len(times) / sum(times)
    return 0


def write_runs(folder: Path, number: int) -> int:
    """Write `number` finished runs of the tiny model, 30 lines each; return the bytes of their logs."""
    import random  # noqa: PLC0415

    from nlp_bench.config.request import Request  # noqa: PLC0415
    from nlp_bench.config.resolve import resolve  # noqa: PLC0415
    from nlp_bench.files import write_json  # noqa: PLC0415
    from nlp_bench.launch.arguments import training_arguments  # noqa: PLC0415
    from nlp_bench.train.arguments import parse  # noqa: PLC0415
    from nlp_bench.train.layout import Layout  # noqa: PLC0415
    from nlp_bench.train.logline import (  # noqa: PLC0415
        Interval,
        argument_lines,
        format_line,
    )

    dice = random.Random(1)  # noqa: S311  # the same runs each time
    run = resolve(Request(model="tiny", system="local", iterations=60), ask_scheduler=False)
    settings = parse(training_arguments(run))
    layout = Layout.of(settings, run.parallel.num_gpus)
    head = "\n".join(argument_lines(settings, layout)) + "\n"
    first = Interval(
        iteration=2, train_iters=60, consumed_samples=0, elapsed_s=0.3, learning_rate=1e-3, loss=5.0, loss_scale=1.0,
        global_batch_size=layout.global_batch_size, grad_norm=1.0, num_skipped=0, num_nan=0, legacy_flops=1e9,
        model_flops=1e9, sequence_length=settings.seq_length, num_gpus=1, peak_bytes=2**30, unix_time_s=1.8e9,
    )  # fmt: skip
    size = 0
    for index in range(number):
        path = folder / f"run{index:05d}"
        path.mkdir()
        run.write(path)
        write_json(
            path / "outcome.json",
            {"schema": "nlp-bench/outcome/1", "outcome": "VALID", "reasons": [], "exit_status": 0},
        )
        lines = []
        clock_s = 1.8e9
        for i in range(2, 61, 2):
            elapsed_s = dice.gauss(0.3, 0.003)
            clock_s += 2 * elapsed_s
            samples = i * layout.global_batch_size
            lines.append(
                format_line(
                    replace(first, iteration=i, consumed_samples=samples, elapsed_s=elapsed_s, unix_time_s=clock_s)
                )
            )
        text = head + "\n".join(lines) + "\n"
        (path / "job.out").write_text(text)
        size += len(text)
    return size


if __name__ == "__main__":
    sys.exit(main())
