# ruff: noqa: INP001  # scripts, not a package
"""How long does a rehearsal take, and how much memory? A rank of the 175B job on 384 GPUs and of one on 16 384, with start-up.

    python benchmark/perf/rehearse.py [--repeats 3]

Each is the command that a person types, in a fresh process; its memory is the sum over the command and the processes that it
starts (Pss of /proc/PID/smaps_rollup: pages that they share count once), read ten times per second. Linux only.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from trainer_vs_torch import positive

JOB = ("rehearse", "--model", "175", "--system", "juwels-booster")
JOBS = {
    "175B, 384 GPUs, rank 0": ("--nodes", "96", "--ranks", "0"),
    "175B, 384 GPUs, last rank": ("--nodes", "96", "--ranks", "last"),
    "175B, 384 GPUs, 4 virtual stages, rank 0": ("--nodes", "96", "--vpp", "4", "--ranks", "0"),
    "175B, 16 384 GPUs, rank 0": ("--nodes", "4096", "--ranks", "0"),
    "175B, 16 384 GPUs, last rank": ("--nodes", "4096", "--ranks", "last"),
}
"""The options of each row."""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="runs of each command (3)")
    repeats = parser.parse_args().repeats
    print(
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}; median of {repeats}"
    )
    print(f"{'job':<42}{'seconds':>9}{'least':>8}{'most':>8}{'MiB':>7}")
    for name, words in JOBS.items():
        found = [measured(words) for _ in range(repeats)]
        seconds, peaks = zip(*found, strict=True)
        middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
        print(f"{name:<42}{middle:>9.1f}{least:>8.1f}{most:>8.1f}{max(peaks) / 2**20:>7.0f}", flush=True)


def measured(words: tuple[str, ...]) -> tuple[float, int]:
    """Return the seconds of one command and the bytes of it and all that it starts."""
    begun_s, peak = time.perf_counter(), 0
    with subprocess.Popen([sys.executable, "-m", "nlp_bench", *JOB, *words], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(shared_bytes, family(process.pid))))
            time.sleep(0.1)
    if process.returncode:
        sys.exit(f"nlp-bench {' '.join(words)} ended with {process.returncode}")
    return time.perf_counter() - begun_s, peak


def family(pid: int) -> list[int]:
    """Return a process and those that it has started, and they."""
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def shared_bytes(pid: int) -> int:
    """Return the bytes of a process, of pages that several have their share; 0 of one that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
