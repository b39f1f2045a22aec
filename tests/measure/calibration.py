"""How often the interval holds the truth, a slow machine passes, two equal machines differ: by simulated runs.

python tests/measure/calibration.py [--runs 2000] [--seed 1] [--only WORD]     prints the table of docs/number.md
"""

import argparse
import sys
from pathlib import Path
from zlib import crc32

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.simulated import TRUE_RATE, Kind, measured

from nlp_bench.measure.estimate import Estimate, over_runs, ratio_of

KINDS = tuple(
    Kind(name=name, **what)
    for name, what in (
        ("independent noise", {}),
        ("autocorrelation 0.3", {"autocorrelation": 0.3}),
        ("autocorrelation 0.6", {"autocorrelation": 0.6}),
        ("warm-up", {"warm_up": True, "autocorrelation": 0.3}),
        ("throttling", {"throttling": True, "autocorrelation": 0.3}),
        ("fast start", {"fast_start": True, "autocorrelation": 0.3}),
        ("warm-up and throttling", {"warm_up": True, "throttling": True, "autocorrelation": 0.3}),
        ("a line every 10 of 150", {"iterations": 150, "log_interval": 10, "warm_up": True, "autocorrelation": 0.3}),
        (
            "the same, throttling",
            {"iterations": 150, "log_interval": 10, "warm_up": True, "throttling": True, "autocorrelation": 0.3},
        ),
        ("a line every 10 of 500", {"log_interval": 10, "warm_up": True, "autocorrelation": 0.6}),
        ("100 iterations", {"iterations": 100, "warm_up": True, "autocorrelation": 0.3}),
        ("2000 iterations", {"iterations": 2000, "warm_up": True, "throttling": True, "autocorrelation": 0.6}),
    )
)
HARD = (
    Kind(name="second order, 0.5 and 0.3", autocorrelation=0.5, second_order=0.3),
    Kind(name="rare stalls: 2 % of iterations", stalls=0.02, autocorrelation=0.3),
    Kind(name="rare stalls: 0.5 % of iterations", stalls=0.005, autocorrelation=0.3),
    Kind(name="long memory, Hurst exponent 0.7", hurst=0.7),
    Kind(name="5 lines of 10, autocorrelation 0.9", iterations=50, log_interval=10, autocorrelation=0.9, warm_up=True),
)
"""Where the interval is known to hold the truth less often: what a run did not show, it cannot tell."""
REPEATED = tuple(
    Kind(
        name=f"{number} runs each, 1 % between runs",
        warm_up=True,
        autocorrelation=0.3,
        between_runs=0.01,
        iterations=150,
    )
    for number in (3, 5)
)


def holds(estimate: Estimate | None) -> bool:
    """Say whether the interval of `estimate` holds the true rate."""
    interval = estimate.interval() if estimate else None
    return interval is not None and interval[0] <= TRUE_RATE <= interval[1]


def passes(estimate: Estimate | None) -> bool:
    """Say whether a machine that only just fails, with the limit a hair above what it needs, would be proven to pass."""
    interval = estimate.interval() if estimate else None
    return interval is not None and interval[0] > TRUE_RATE


def differ(first: Estimate | None, second: Estimate | None) -> bool:
    """Say whether two machines, equally fast in truth, are found to differ."""
    return first is not None and second is not None and ratio_of(first, second).p_value < 0.05


def single(kind: Kind, runs: int, dice: np.random.Generator) -> tuple[float, float, float, float]:
    """Return shares of runs: interval holds the truth, false pass, A/A alarm; and the median half width."""
    estimates = [measured(kind, dice).estimate for _ in range(runs)]
    alarms = [differ(one, two) for one, two in zip(estimates[::2], estimates[1::2], strict=False)]
    return _row(estimates, alarms)


def repeated(kind: Kind, number: int, runs: int, dice: np.random.Generator) -> tuple[float, float, float, float]:
    """Return the same for the mean over `number` runs each."""
    estimates = [over_runs([1 / measured(kind, dice).steady for _ in range(number)]) for _ in range(runs)]
    alarms = [differ(one, two) for one, two in zip(estimates[::2], estimates[1::2], strict=False)]
    return _row(estimates, alarms)


def _row(estimates: list[Estimate | None], alarms: list[bool]) -> tuple[float, float, float, float]:
    widths = [e.half_width() / e.seconds_per_token for e in estimates if e]
    return (
        float(np.mean([holds(e) for e in estimates])),
        float(np.mean([passes(e) for e in estimates])),
        float(np.mean(alarms)),
        float(np.median(widths)),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="simulated runs of each kind (an A/A pair takes two)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds with this word")
    options = parser.parse_args()
    print("| kind of run | runs | interval holds the truth | false pass | A/A alarm | half width |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind in (*KINDS, *REPEATED, *HARD):
        if options.only not in kind.name:
            continue
        dice = np.random.default_rng([options.seed, crc32(kind.name.encode())])
        runs = 2 * options.runs
        row = repeated(kind, int(kind.name[0]), runs, dice) if kind in REPEATED else single(kind, runs, dice)
        held, passed, alarm, width = (f"{100 * share:.1f} %" for share in row)
        print(f"| {kind.name} | {runs} | {held} | {passed} | {alarm} | {width} |", flush=True)


if __name__ == "__main__":
    main()
