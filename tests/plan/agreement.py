"""Hold the planner against rehearsals on random configurations: counts must be equal, memory within 2 %. Prints a table.

Run it with `python tests/plan/agreement.py --num 150 --seed 1`; it takes one to two seconds a configuration and core.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.agreement import Pair, compare
from support.jobs import real_cases, sample

TOLERANCE = 0.02


def main(words: list[str]) -> int:
    """Return 1 where one configuration does not agree, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=150, help="configurations (default 150)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--worst", type=int, default=10, help="lines of the table: those whose memory differs most")
    parser.add_argument("--real", action="store_true", help="13B and 175B in some layouts instead")
    parser.add_argument("--partial", action="store_true", help="with recompute of a part of the layers or modules")
    asked = parser.parse_args(words)
    if asked.num < 1:
        parser.error(f"--num: {asked.num} is not at least 1")
    pairs = list(compare(real_cases() if asked.real else sample(asked.num, asked.seed, partial=asked.partial)))
    pairs.sort(key=lambda pair: -abs(pair.memory_error))
    print("memory   counts  configuration")
    wrong = [pair for pair in pairs if pair.differences]
    for pair in dict.fromkeys([*wrong, *pairs[: asked.worst]]):
        print(f"{pair.memory_error:+7.2%}  {'equal' if not pair.differences else 'DIFFER':<6}  {pair.case.describe()}")
        for line in pair.differences:
            print(f"                 {line}")
    print(summary(pairs))
    return int(bool(wrong) or abs(pairs[0].memory_error) > TOLERANCE)


def summary(pairs: list[Pair]) -> str:
    """Return one line; `pairs` are in the order of their memory's error, the greatest first."""
    errors = [abs(pair.memory_error) for pair in pairs]
    wrong = sum(bool(pair.differences) for pair in pairs)
    over = sum(error > TOLERANCE for error in errors)
    return (
        f"{len(pairs)} configurations: {wrong} with different counts; memory differs by {errors[len(errors) // 2]:.3%} (median), "
        f"{errors[0]:.2%} (most), {over} by more than {TOLERANCE:.0%}"
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
