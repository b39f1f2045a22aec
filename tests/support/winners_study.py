"""How often the truly best configuration is among the winners: python tests/support/winners_study.py prints the table of docs/scaling.md.

Each case draws runs from normal distributions with known means; "all equal" is the hardest, since any of them may look slow by chance.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from nlp_bench.analysis.sweep import winners
from nlp_bench.measure.estimate import Estimate

CASES = (
    ("all equal, 3 runs each", 5, 3, 0.0, 1.0),
    ("all equal, 5 runs each", 2, 5, 0.0, 1.0),
    ("all equal, 5 runs each", 20, 5, 0.0, 1.0),
    ("all equal, spreads differ up to 8 times", 8, 5, 0.0, 8.0),
    ("0.5 % apart, 5 runs each", 8, 5, 0.005, 1.0),
    ("3 % apart, 5 runs each", 8, 5, 0.03, 1.0),
)
"""Words, configurations, runs of each, relative step from one mean to the next, largest / smallest spread."""


def study(
    configurations: int, runs: int, step: float, spreads: float, *, number: int, seed: int = 1
) -> tuple[float, float]:
    """Return how often the truly best one (the first) is a winner, and how many winners there are on average."""
    random = np.random.default_rng(seed)
    means = 1 + step * np.arange(configurations)
    spread = 0.01 * np.geomspace(1, spreads, configurations)
    kept, named = 0, 0
    for _ in range(number):
        drawn = random.normal(means[:, None], random.permutation(spread)[:, None], (configurations, runs))
        errors = drawn.std(axis=1, ddof=1) / np.sqrt(runs)
        found = winners(
            [
                Estimate(seconds_per_token=float(mean), standard_error=float(error), degrees=runs - 1)
                for mean, error in zip(drawn.mean(axis=1), errors, strict=True)
            ]
        )
        kept += found[0]
        named += sum(found)
    return kept / number, named / number


def main() -> None:
    print("| case | configurations | the best one is a winner | winners on average |\n| --- | ---: | ---: | ---: |")
    for words, configurations, runs, step, spreads in CASES:
        share, named = study(configurations, runs, step, spreads, number=4000)
        print(f"| {words} | {configurations} | {100 * share:.1f} % | {named:.1f} |")


if __name__ == "__main__":
    main()
