# ruff: noqa: INP001  # scripts, not a package
"""How much of a node does the recorder of energy and clocks take? Runs it alone and reads its own processor time from Linux.

    python benchmark/perf/recorder.py --seconds 30 --gpus 4

On a node with GPUs it asks the real driver; LD_LIBRARY_PATH may name a folder with another one, as the tests' stand-in.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Print processor time per second and per sample, and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--gpus", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recorder = subprocess.Popen(
            [
                sys.executable, "-m", "nlp_bench.machine.recorder", folder, "--parent", str(os.getpid()),
                "--gpus", str(options.gpus),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        time.sleep(2)  # its start is not its work
        before_s = used_s(recorder.pid)
        time.sleep(options.seconds)
        busy_s = used_s(recorder.pid) - before_s
        memory = next(line for line in status(recorder.pid) if line.startswith("VmRSS")).split()[1]
        recorder.terminate()
        recorder.wait()
        (csv,) = Path(folder, "machine").glob("*.csv")
        columns = csv.read_text(encoding="ascii").partition("\n")[0].count(",") + 1
    share = 100 * busy_s / options.seconds
    print(
        f"{share:.2f} % of one core, {1e3 * busy_s / options.seconds:.2f} ms per sample of {columns} columns, {memory} KiB"
    )


def used_s(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status(pid: int) -> list[str]:
    """Return the lines of a process's status."""
    return Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()


if __name__ == "__main__":
    main()
