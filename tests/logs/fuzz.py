"""Mutate the fixtures' logs: no exception, and no rate that the log did not state.

    python tests/logs/fuzz.py --count 1000000 --seed 1

Prints what failed, with the seed that repeats it; exits with 1 if anything did.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.fuzzing import bases, problem


def main() -> int:
    """Run the number of mutations that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="mutations (default 10000)")
    parser.add_argument("--seed", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--only", default="", help="fixtures whose name holds this word")
    options = parser.parse_args()
    start, failed = time.perf_counter(), 0
    shared_memory = Path("/dev/shm")  # noqa: S108  # files of a disk would take most of the time
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as folder:
        known = [base for base in bases(Path(folder)) if options.only in base.name]
        for seed in range(options.seed, options.seed + options.count):
            found = problem(Path(folder) / "mutated.log", known[seed % len(known)], seed)
            if found:
                failed += 1
                print(found)
    print(f"{options.count} mutations of {len(known)} logs, {failed} failed, {time.perf_counter() - start:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
