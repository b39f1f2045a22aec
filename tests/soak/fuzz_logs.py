"""Mutate the fixtures' logs: no exception, no hang, and how often a rate comes out that the log did not state.

    python tests/soak/fuzz_logs.py --num 1000000 --seed 1

Prints what failed, with the seed that repeats it; exits with 1 if anything did. Two halves of lines that make a whole one state a rate
that nobody could know for false: those are printed and counted for themselves (70 % of the mutations leave every number as it was,
and are looked at for it).
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, whatever is installed

from support.fuzzing import INVENTED, bases, problem

from soak.workers import run_all

BOUND_S = 20.0  # of one log; they take milliseconds, and the machine may be busy


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=10_000, help="mutations (default 10000)")
    parser.add_argument("--seed", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--processes", type=int, default=0, help="at the same time (default: all cores)")
    parser.add_argument("--only", default="", help="fixtures whose name holds this word")
    options = parser.parse_args(words)
    start = time.perf_counter()

    invented = multiprocessing.get_context("fork").Value("q", 0)

    def prepare(folder: Path) -> Callable[[int], str | None]:
        known = [base for base in bases(folder) if options.only in base.name]

        def check(seed: int) -> str | None:
            found = problem(folder / "mutated.log", known[seed % len(known)], seed)
            if found and INVENTED in found:
                print(found, flush=True)
                with invented.get_lock():
                    invented.value += 1
                return None
            return found

        return check

    failed = run_all(prepare, first=options.seed, num=options.num, processes=options.processes, bound_s=BOUND_S)
    print(
        f"fuzz_logs: {options.num} mutated logs, {failed} failed, {invented.value} with a rate of two halves of lines, "
        f"{time.perf_counter() - start:.0f} s"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
