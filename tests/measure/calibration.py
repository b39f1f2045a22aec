"""How often the interval holds the truth, a slow machine passes, two equal machines differ: by simulated runs.

python tests/measure/calibration.py [--runs 2000] [--seed 1] [--only WORD]     prints the tables of docs/number.md
NLP_BENCH_NOISE=FILE.npz names step times of long real runs for the first table; without them it is left out.
"""

import argparse
import sys
from pathlib import Path
from zlib import crc32

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from numpy.typing import NDArray
from support import noise
from support.simulated import TRUE_RATE, Kind, measured, throughput_of

from nlp_bench.measure.estimate import Estimate, over_runs, ratio_of, student_t
from nlp_bench.measure.limit import why_interval_proves_nothing

KINDS = (
    Kind(name="independent noise"),
    Kind(name="autocorrelation 0.3", autocorrelation=0.3),
    Kind(name="autocorrelation 0.6", autocorrelation=0.6),
    Kind(name="warm-up", warm_up=True, autocorrelation=0.3),
    Kind(name="throttling", throttling=True, autocorrelation=0.3),
    Kind(name="fast start", fast_start=True, autocorrelation=0.3),
    Kind(name="warm-up and throttling", warm_up=True, throttling=True, autocorrelation=0.3),
    Kind(name="a line every 10 of 150", iterations=150, log_interval=10, warm_up=True, autocorrelation=0.3),
    Kind(name="the same, throttling", iterations=150, log_interval=10, warm_up=True, throttling=True, autocorrelation=0.3),
    Kind(name="a line every 10 of 500", log_interval=10, warm_up=True, autocorrelation=0.6),
    Kind(name="100 iterations", iterations=100, warm_up=True, autocorrelation=0.3),
    Kind(name="2000 iterations", iterations=2000, warm_up=True, throttling=True, autocorrelation=0.6),
)  # fmt: skip
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
    interval = estimate.interval() if estimate else None
    return interval is not None and interval[0] <= TRUE_RATE <= interval[1]


def passes(estimate: Estimate | None) -> bool:
    """Say whether a machine that only just fails, with the limit a hair above what it needs, would be proven to pass."""
    interval = estimate.interval() if estimate else None
    return interval is not None and interval[0] > TRUE_RATE


def differ(first: Estimate | None, second: Estimate | None) -> bool:
    """Say whether two machines, equally fast in truth, are found to differ."""
    return first is not None and second is not None and ratio_of(first, second).p_value < 0.05


def estimates_of(kind: Kind, runs: int, dice: np.random.Generator) -> list[Estimate | None]:
    """Return the estimate of each simulated run; of REPEATED, that of the mean over so many runs."""
    if kind not in REPEATED:
        return [measured(kind, dice).estimate for _ in range(runs)]
    number = int(kind.name[0])
    return [over_runs([1 / measured(kind, dice).steady for _ in range(number)]) for _ in range(runs)]


def shares_of(estimates: list[Estimate | None]) -> tuple[float, float, float, float]:
    """Return shares of runs: interval holds the truth, false pass, A/A alarm; and the median half width."""
    pairs = zip(estimates[::2], estimates[1::2], strict=False)
    widths = [e.relative_half_width() for e in estimates if e]
    return (
        float(np.mean([holds(e) for e in estimates])),
        float(np.mean([passes(e) for e in estimates])),
        float(np.mean([differ(*pair) for pair in pairs])),
        float(np.median(widths)),
    )


Column = NDArray[np.float64]
TOKENS = TRUE_RATE * noise.TRUE_S  # of an iteration
Interval = tuple[float, float, float]  # mean, lower and upper end, in seconds


def ours(times: Column, step: int) -> Interval:
    found = throughput_of(times, step)
    low, high = found.ci95 or (1e-9, 1e9)
    return TOKENS / found.steady, TOKENS / high, TOKENS / low


def is_passed(times: Column, step: int, truth: float) -> bool:
    """Say whether a limit at the truth would be proven to be kept."""
    found = throughput_of(times, step)
    interval = (TOKENS / found.ci95[1], TOKENS / found.ci95[0]) if found.ci95 else None
    ending = found.ending_seconds_per_token
    reason = why_interval_proves_nothing(interval, truth, ending and TOKENS * ending) if interval else "no interval"
    return reason is None and interval is not None and interval[1] <= truth


def _of_batches(times: Column, count: int = 10) -> Interval:
    count = min(count, len(times))
    size = len(times) // count
    means = times[len(times) - count * size :].reshape(count, size).mean(axis=1)
    return _student(float(times.mean()), float(means.std(ddof=1)) / np.sqrt(count), count - 1)


def _student(mean: float, error: float, degrees: int) -> Interval:
    half = student_t(0.975, degrees) * error
    return mean, mean - half, mean + half


def all_lines(times: Column, _: int) -> Interval:
    """The mean of all lines, taken for independent."""
    return _student(float(times.mean()), float(times.std(ddof=1)) / np.sqrt(len(times)), len(times) - 1)


def batch_means(times: Column, _: int) -> Interval:
    """The first 10 % dropped, ten batch means (Law and Kelton)."""
    return _of_batches(times[len(times) // 10 :])


def mser(times: Column, _: int) -> Interval:
    """The front cut where the marginal standard error is least (White 1997), ten batch means."""
    cuts = np.arange(len(times) // 2)
    return _of_batches(times[int(np.argmin([times[cut:].var() / (len(times) - cut) for cut in cuts])) :])


def bootstrap(times: Column, _: int) -> Interval:
    """The first 10 % dropped, moving blocks of n^(1/2) lines drawn 400 times (Kuensch 1989), percentiles."""
    times = times[len(times) // 10 :]
    number = len(times)
    size = max(round(number**0.5), 1)
    begins = np.random.default_rng(len(times)).integers(number - size + 1, size=(400, -(-number // size)))
    sums = np.concatenate([[0.0], np.cumsum(times)])
    means = (sums[begins + size] - sums[begins]).mean(axis=1) / size
    low, high = np.percentile(means, (2.5, 97.5))
    return float(times.mean()), float(low), float(high)


RIVALS = (all_lines, batch_means, mser, bootstrap)


def real(runs: int, seed: int, only: str) -> None:
    """Print the table of windows cut from real runs, the kind whose intervals hold the truth least first."""
    rows = []
    for kind in noise.KINDS:
        if only not in kind.name:
            continue
        dice = np.random.default_rng([seed, crc32(kind.name.encode())])
        cut = list(noise.windows(kind, runs, dice))
        truth = np.array([true for _, true in cut])
        shares = []
        for rival in (ours, *RIVALS):
            mean, low, high = (
                np.array(ends) / truth - 1
                for ends in zip(*(rival(times, kind.log_interval) for times, _ in cut), strict=True)
            )
            shares.append(
                (
                    float(np.mean((low <= 0) & (high >= 0))),
                    float(np.mean(high < 0)),
                    float(mean.mean()),
                    float(np.median(high - low)) / 2,
                )
            )
        passed = float(np.mean([is_passed(times, kind.log_interval, true) for times, true in cut]))
        rows.append((kind.name, passed, shares))
    print(
        "| kind of window | windows | bias | interval holds the truth | all of it too fast | false pass | half width | mean of all lines | batch means | MSER | block bootstrap |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, passed, shares in sorted(rows, key=lambda row: row[2][0][0]):
        held, faster, bias, half = shares[0]
        rivals = " | ".join(f"{100 * share[0]:.0f} %, {100 * share[3]:.2f} %" for share in shares[1:])
        print(
            f"| {name} | {runs} | {100 * bias:+.2f} % | {100 * held:.1f} % | {100 * faster:.1f} % | {100 * passed:.1f} % | {100 * half:.2f} % | {rivals} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="simulated runs of each kind (an A/A pair takes two)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds with this word")
    options = parser.parse_args()
    if noise.runs():
        real(options.runs, options.seed, options.only)
    print("| kind of run | runs | interval holds the truth | false pass | A/A alarm | half width |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind in (*KINDS, *REPEATED, *HARD):
        if options.only not in kind.name:
            continue
        dice = np.random.default_rng([options.seed, crc32(kind.name.encode())])
        runs = 2 * options.runs
        shares = shares_of(estimates_of(kind, runs, dice))
        held, passed, alarm, width = (f"{100 * share:.1f} %" for share in shares)
        print(f"| {kind.name} | {runs} | {held} | {passed} | {alarm} | {width} |", flush=True)


if __name__ == "__main__":
    main()
