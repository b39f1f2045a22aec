"""Starting the recorder of this node, so that it can neither hold up the ranks nor outlive them."""

import os
import subprocess
import sys
from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.errors import UsageError

VARIABLE = "NLP_BENCH_SAMPLE_S"
"""Seconds between two samples (default 1); 0 records nothing."""
SLOWEST_S = 60.0


def interval_s() -> float:
    """Return the seconds between two samples; raises UsageError for a word that is no number from 0 to 60."""
    text = os.environ.get(VARIABLE, "1")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value != 0 and not 0.05 <= value <= SLOWEST_S:
        raise UsageError(
            f"{VARIABLE}: {text!r} is no number of seconds from 0.05 to {SLOWEST_S:g}; leave it out for 1, or set 0 to record nothing"
        )
    return value


def recorder_command(run: Run, run_dir: Path, parent: int, every_s: float) -> list[str]:
    """Return the words that start the recorder for the process `parent`."""
    gpus = run.parallel.gpus_per_node if run.system.accelerator == "cuda" else 0
    return [
        sys.executable, "-m", "nlp_bench.machine.sampler", str(run_dir),
        "--parent", str(parent), "--gpus", str(gpus), "--interval-s", f"{every_s:g}",
    ]  # fmt: skip


def start_recorder(run: Run, run_dir: Path) -> None:
    """Start it as a child of this process, which then becomes torchrun; a node where it cannot start runs without.

    It has no stream of ours: the log must end with the ranks. Raises UsageError for a wrong NLP_BENCH_SAMPLE_S.
    """
    every_s = interval_s()
    if not every_s:
        return
    try:
        subprocess.Popen(
            recorder_command(run, run_dir, os.getpid(), every_s),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        print(f"nlp-bench: the recorder of this node cannot start: {error.strerror}", file=sys.stderr)
