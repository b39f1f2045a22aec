"""How often compare and the trend of the history are wrong, and what they find, beside the tests and charts that are named for it.

python tests/compare/calibration.py [--runs 2000] [--seed 1] [--part compare|history] [--real STEPS.npz]
prints the tables of docs/compare.md. STEPS.npz holds arrays of step times in ms, one per real run; a "real" run or night is then the mean of
150 neighbouring steps of one of them / the mean of that whole run. Scatter is 1 everywhere: a difference of 2 is one of 2 % at 1 %.
"""

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from nlp_bench.analysis.contrast import Scatter, Verdict, statistic
from nlp_bench.analysis.repeats import Observation, Pool
from nlp_bench.analysis.row import Row
from nlp_bench.analysis.trend import trends
from nlp_bench.measure.estimate import Estimate, student_t
from nlp_bench.outcome import Outcome

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]
CV = 0.01
WITHIN = 0.001
NIGHTS, STEP_AT, STEP = 60, 30, 0.5 / 0.3
CREEP, CREEPS, BEGIN = 0.8 / 0.3, 14, (0, 7, 14)
"""A creep per night, its nights, and the nights before it."""
PHASE_1 = 20
"""Nights from which the charts take median and scatter (1.4826 x median absolute deviation)."""


def _autocorrelated(dice: np.random.Generator, number: int) -> Values:
    values = dice.standard_normal(number)
    for index in range(1, number):
        values[index] = 0.3 * values[index - 1] + math.sqrt(1 - 0.3**2) * values[index]
    return values


def _lognormal(dice: np.random.Generator, number: int) -> Values:
    spread = 0.8
    mean, variance = math.exp(spread**2 / 2), (math.exp(spread**2) - 1) * math.exp(spread**2)
    return (np.exp(spread * dice.standard_normal(number)) - mean) / math.sqrt(variance)


KINDS: dict[str, Draw] = {
    "normal": lambda dice, number: dice.standard_normal(number),
    "heavy tails (t, 3 degrees)": lambda dice, number: dice.standard_t(3, number) / math.sqrt(3),
    "skewed (lognormal 0.8)": _lognormal,
}
NIGHT_KINDS: dict[str, Draw] = {
    **KINDS,
    "5 % of nights 8 scatters slow": lambda dice, number: (
        dice.standard_normal(number) + 8 * (dice.random(number) < 0.05)
    ),
    "autocorrelation 0.3": _autocorrelated,
}


def real(path: Path) -> Draw:
    """Return windows of real runs, standardised over all of them."""
    with np.load(path) as arrays:
        runs = [arrays[name] / arrays[name].mean() for name in arrays if name.startswith("stall")]
    size = 150
    every = np.concatenate([run[: len(run) // size * size].reshape(-1, size).mean(axis=1) for run in runs])

    def draw(dice: np.random.Generator, number: int) -> Values:
        which = [runs[index] for index in dice.integers(len(runs), size=number)]
        begins = [int(dice.integers(len(run) - size)) for run in which]
        means = [float(run[begin : begin + size].mean()) for run, begin in zip(which, begins, strict=True)]
        return (np.array(means) - every.mean()) / every.std()

    return draw


def pool(seconds: Values) -> Pool:
    """Return runs of these times per token."""
    runs = [
        Observation(
            source="a", outcome=Outcome.VALID, seconds_per_token=s,
            estimate=Estimate(seconds_per_token=s, standard_error=WITHIN * s, degrees=20),
        )
        for s in seconds.tolist()
    ]  # fmt: skip
    return Pool(runs=tuple(runs))


def rivals(a: Values, b: Values) -> list[bool]:
    """Say whether the pooled t test and Welch's, on the logarithms, find a difference at 5 %."""
    one, two, first, second = np.log(a), np.log(b), len(a), len(b)
    distance = abs(float(one.mean() - two.mean()))
    if min(first, second) < 2:  # the t test of one further run
        both = one if first > 1 else two
        error = float(both.std(ddof=1)) * math.sqrt(1 + 1 / len(both))
        return [distance > student_t(0.975, len(both) - 1) * error, False]
    squares = [float(values.var(ddof=1)) for values in (one, two)]
    common = ((first - 1) * squares[0] + (second - 1) * squares[1]) / (first + second - 2)
    pooled = student_t(0.975, first + second - 2) * math.sqrt(common * (1 / first + 1 / second))
    shares = [squares[0] / first, squares[1] / second]
    degrees = sum(shares) ** 2 / (shares[0] ** 2 / (first - 1) + shares[1] ** 2 / (second - 1))
    # To a hundredth: the quantiles are kept.
    return [distance > pooled, distance > student_t(0.975, round(degrees, 2)) * math.sqrt(sum(shares))]


SIZES = ((2, 2), (3, 3), (5, 5), (2, 10), (3, 10), (1, 5))


def comparisons(kinds: dict[str, Draw], runs: int, seed: int) -> None:
    """Print how often equal ones are found to differ, and how often a difference of two scatters is found."""
    tests = "other machine | pooled t | Welch"
    print(f"| runs scatter | A, B | false: same machine | {tests} | found: same | other | pooled | Welch |")
    print("|---|---|" + "---:|" * 8)
    cases = [(name, draw, 1.0, size) for name, draw in kinds.items() for size in SIZES]
    normal = kinds["normal"]
    cases += [
        (f"normal, B {times:g} x A's", normal, times, size)
        for times in (2.0, 3.0)
        for size in ((3, 3), (5, 5), (3, 10))
    ]
    cases += [("normal, A 3 x B's", normal, 1 / 3, (3, 10))]
    for name, draw, times, (first, second) in cases:
        dice = np.random.default_rng([seed, crc32(f"{name} {first} {second}".encode())])
        scales = (CV, times * CV) if times >= 1 else (CV / times, CV)
        found = []
        for difference in (0.0, 2 * CV):
            hits = np.zeros(4)
            for _ in range(runs):
                a, b = np.exp(scales[0] * draw(dice, first)), np.exp(difference + scales[1] * draw(dice, second))
                sides = pool(a), pool(b)
                ours = [statistic(*sides, same_machine=same).verdict for same in (True, False)]
                hits += [*(word in {Verdict.FASTER, Verdict.SLOWER} for word in ours), *rivals(a, b)]
            found += [f"{100 * share / runs:.1f} %" for share in hits]
            found[-1] = found[-1] if min(first, second) > 1 else "-"
        print(f"| {name} | {first}, {second} | {' | '.join(found)} |", flush=True)
    known(kinds, runs, seed)


def known(kinds: dict[str, Draw], runs: int, seed: int) -> None:
    """Print the same for runs of which 10 others show the scatter."""
    print("\n| 10 other runs show the scatter | A, B | false | found |\n|---|---|---:|---:|")
    for name, draw in kinds.items():
        for size in (1, 3):
            dice, found = np.random.default_rng([seed, crc32(name.encode()), size]), []
            for difference in (0.0, 2 * CV):
                hits = 0
                for _ in range(runs):
                    others = Scatter.of(pool(np.exp(CV * draw(dice, 10))))
                    a, b = (pool(np.exp(shift + CV * draw(dice, size))) for shift in (0.0, difference))
                    hits += statistic(a, b, known=others).verdict in {Verdict.FASTER, Verdict.SLOWER}
                found.append(f"{100 * hits / runs:.1f} %")
            print(f"| {name} | {size}, {size} | {' | '.join(found)} |", flush=True)


def charted(values: Values, *, ewma: bool, is_known: bool) -> int | None:
    """Return the night at which a chart on robust residuals signals: EWMA (0.2, 3) or CUSUM (0.5, 5)."""
    middle = 0.0 if is_known else float(np.median(values[:PHASE_1]))
    scale = 1.0 if is_known else 1.4826 * float(np.median(np.abs(values[:PHASE_1] - middle)))
    begin, mean, up, down = 0 if is_known else PHASE_1, 0.0, 0.0, 0.0
    for night, value in enumerate(np.clip((values[begin:] - middle) / scale, -3, 3).tolist(), start=1):
        mean = 0.2 * value + 0.8 * mean
        up, down = max(0.0, up + value - 0.5), max(0.0, down - value - 0.5)
        bound = 3 * math.sqrt(0.2 / 1.8 * (1 - 0.8 ** (2 * night)))
        if (abs(mean) > bound) if ewma else (max(up, down) > 5):
            return begin + night
    return None


def first_level(values: Values) -> int | None:
    """Return after which night the trend has a new level."""
    rows = [
        Row(id=day, key=str(day), ended="", ended_s=86400.0 * day, source="", identity="a", outcome="VALID",
            tokens_per_second_steady=1 / seconds, standard_error=WITHIN * CV * seconds, degrees=20.0)
        for day, seconds in enumerate((1 + 0.003 * values).tolist(), start=1)
    ]  # fmt: skip

    def has_changed(nights: int) -> bool:
        return len(trends(rows[:nights])[0].levels) > 1

    if not has_changed(len(rows)):
        return None
    low, high = 0, len(rows)
    while high - low > 1:  # a level stays, once it is there: nights to come do not change what was decided
        middle = (low + high) // 2
        low, high = (low, middle) if has_changed(middle) else (middle, high)
    return high


CHARTS: dict[str, Callable[[Values], int | None]] = {
    "trend": first_level,
    "EWMA": lambda values: charted(values, ewma=True, is_known=False),
    "CUSUM": lambda values: charted(values, ewma=False, is_known=False),
    "EWMA, level known": lambda values: charted(values, ewma=True, is_known=True),
}


def nights(kinds: dict[str, Draw], runs: int, seed: int) -> None:
    """Print how often NIGHTS nights of one level have a second one, and how often and when a step of 0.5 % at 0.3 % scatter is seen."""
    names = list(CHARTS)
    print(f"\n| nights scatter | false: {' | '.join(names)} | found (nights later): {' | '.join(names)} |")
    print("|---|" + "---:|" * (2 * len(names)))
    for name, draw in kinds.items():
        dice = np.random.default_rng([seed, crc32(name.encode())])
        even = [draw(dice, NIGHTS) for _ in range(runs)]
        step = STEP * (np.arange(NIGHTS) >= STEP_AT)
        stepped = [draw(dice, NIGHTS) + step for _ in range(runs)]
        cells = [f"{100 * np.mean([chart(values) is not None for values in even]):.1f} %" for chart in CHARTS.values()]
        for chart in CHARTS.values():
            late = [night - STEP_AT for values in stepped if (night := chart(values)) is not None and night > STEP_AT]
            cells.append(f"{100 * len(late) / runs:.0f} % ({np.median(late):.0f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def creeps(kinds: dict[str, Draw], runs: int, seed: int) -> None:
    """Print how often the trend finds, within CREEPS nights of it, a creep of 0.8 % a night at 0.3 % scatter, and when."""
    print(f"\n| nights scatter | {' | '.join(f'creep after {begin} nights' for begin in BEGIN)} |")
    print("|---|" + "---:|" * len(BEGIN))
    for name, draw in kinds.items():
        dice, cells = np.random.default_rng([seed, crc32(name.encode())]), []
        for begin in BEGIN:
            slower = CREEP * np.maximum(0, np.arange(begin + CREEPS) - begin + 1)
            found = [first_level(draw(dice, len(slower)) + slower) for _ in range(runs)]
            late = [night - begin for night in found if night is not None and night > begin]
            cells.append(f"{100 * len(late) / runs:.0f} %{f' ({np.median(late):.0f})' if late else ''}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="comparisons and series of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=("compare", "history"))
    text = "step times of real runs; without it that row is left out"
    parser.add_argument("--real", type=Path, metavar="STEPS.npz", help=text)
    options = parser.parse_args()
    extra = {"real": real(options.real)} if options.real else {}
    if options.part != "history":
        comparisons({**KINDS, **extra}, options.runs, options.seed)
    if options.part != "compare":
        nights({**NIGHT_KINDS, **extra}, options.runs, options.seed)
        creeps({**NIGHT_KINDS, **extra}, options.runs, options.seed)


if __name__ == "__main__":
    main()
