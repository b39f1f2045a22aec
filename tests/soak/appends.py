"""Many processes append to one history at the same time, each opening it anew for each of its runs: all records are there.

    python tests/soak/appends.py --runs 50

Prints how many records were found; exits with 1 if one is missing or there twice.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, whatever is installed

from nlp_bench.analysis.store import Filter, open_to_read

SRC = str(Path(__file__).resolve().parents[2] / "src")
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from nlp_bench.analysis.row import Row
from nlp_bench.analysis.store import open_to_write
for n in range(int(sys.argv[4])):
    row = Row(key=f"{sys.argv[3]}-{n}", ended="", ended_s=n, source="", identity="", outcome="VALID")
    with open_to_write(Path(sys.argv[2])) as store:
        store.add([row])
"""


def append(file: Path, *, writers: int, runs: int) -> int:
    """Let `writers` processes append `runs` records each; return how many different ones are there, or fewer if any is wrong."""
    command = [sys.executable, "-c", WRITER, SRC, str(file)]
    processes = [subprocess.Popen([*command, str(number), str(runs)]) for number in range(writers)]
    failed = [process.wait() for process in processes]
    if any(failed):
        print(f"appends: exit codes {failed}")
    with open_to_read(file) as store:
        rows = store.rows(Filter())
    keys, ids = {row.key for row in rows}, {row.id for row in rows}
    return min(len(keys), len(ids)) if len(rows) == len(keys) else -1


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=8, help="processes (default 8)")
    parser.add_argument("--runs", type=int, default=50, help="records of each (default 50)")
    options = parser.parse_args(words)
    wanted = options.writers * options.runs
    with tempfile.TemporaryDirectory() as folder:
        kept = append(Path(folder) / "a folder/history.sqlite3", writers=options.writers, runs=options.runs)
    print(f"appends: {options.writers} processes, {options.runs} runs each: {kept} of {wanted} records")
    return int(kept != wanted)


if __name__ == "__main__":
    sys.exit(main())
