"""Every figure of a few made logs, to the digit: a change of window, interval, drift or verdict that nobody meant is seen here.

`python tests/measure/test_figures.py` writes figures.json anew; each change of it is a change of the number that users see.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.megatron_log import line

import nlp_bench
from nlp_bench.measure.anytime import least_iterations, replay
from nlp_bench.measure.estimate import (
    Estimate,
    Uncertainty,
    over_runs,
    ratio_of,
    student_cdf,
    student_t,
    variance_ratio_tail,
)

FILE = Path(__file__).with_name("figures.json")
KEYS = (
    "outcome", "num_records", "tokens_per_second", "time_to_report_s", "seconds_per_iteration", "window", "steady_state", "sustained",
    "uncertainty", "sensitivity",
)  # fmt: skip
PLACES = (0.97, 0.995, 1.005, 1.03, 1.2, 200)  # limits, as shares of the steady time


def noise(number: int, seed: int, correlation: float = 0.0) -> "np.typing.NDArray[np.float64]":
    shocks = np.random.default_rng(seed).standard_normal(number)
    for i in range(1, number):
        shocks[i] += correlation * shocks[i - 1]
    return 0.01 * shocks


def series() -> Iterator[tuple[str, "np.typing.NDArray[np.float64]", dict[str, Any]]]:
    """Yield name, seconds per iteration of each line, and how they are printed."""
    yield "quiet", 5 + noise(120, 1), {}
    yield "few", 5 + noise(6, 2), {}
    yield "two", 5 + noise(2, 2), {}
    yield "alike", np.full(40, 5.0), {}
    yield "neighbours resemble each other", 5 + 3 * noise(300, 3, 0.7), {}
    stalls = 5 + noise(200, 4)
    stalls[[40, 41, 42, 130]] += [4, 9, 2, 6]
    yield "stalls", stalls, {"clock": 1.0}
    late = 5 + noise(80, 5)
    late[-1] += 3
    yield "a stall at the end", late, {}
    states = 5 + noise(240, 6)
    states[60:110] += 0.6
    states[170:205] += 0.6
    yield "two states", states, {"clock": 1.0}
    throttled = 5 + noise(150, 7)
    throttled[120:] += 0.7
    yield "a slow end", throttled, {"clock": 1.01}
    short_end = 5 + noise(30, 8)
    short_end[-3:] += 0.6
    yield "a short slow end", short_end, {}
    yield "drift", 5 * (1 + 0.0003 * np.arange(200)) + noise(200, 9), {}
    yield "a start that fades", 5 * (1 + 0.4 * np.exp(-np.arange(180) / 12)) + noise(180, 10), {}
    warm = 5 + noise(100, 11)
    warm[:4] = [90, 25, 7, 6]
    yield "a steep start", warm, {}
    fast = 5 + noise(100, 12)
    fast[:20] -= 0.8
    fast[60] = 0.3
    yield "a fast start", fast, {}
    saved = 5 + noise(100, 13)
    saved[20::25] += 2
    yield "checkpoints", saved, {"checkpoints": range(20, 100, 25), "clock": 1.0}
    saved = 5 + noise(100, 14)
    saved[9::10] += 9
    yield "many checkpoints", saved, {"checkpoints": range(9, 100, 10), "clock": 1.0}
    yield "lines of ten", 5 + noise(60, 15), {"every": 10, "clock": 1.002}
    yield "one decimal", np.round(5 + 3 * noise(90, 16), 1), {"digits": 1}
    broken = 5 + noise(100, 17)
    broken[[30, 50]] = 0
    yield "two times of 0", broken, {}
    broken = 5 + noise(1000, 18)
    broken[[30, 50]] = 0
    yield "two times of 0 among many", broken, {}
    yield "a clock that is set back twice", 5 + noise(150, 19), {"clock": 1.0, "back": (40, 90)}
    yield "a clock that is set back often", 5 + noise(150, 19), {"clock": 1.0, "back": (40, 60, 90)}
    yield "a clock that is a little slow", 5 + noise(150, 20), {"clock": 1.015}
    yield "long pauses between the lines", 5 + noise(60, 21), {"clock": 1.0, "pauses": {20: 14.0, 40: 9.0}}
    yield from changed_series()


def changed_series() -> Iterator[tuple[str, "np.typing.NDArray[np.float64]", dict[str, Any]]]:
    for name, number, scatter, changes in CHANGED:
        times = 5 + scatter * noise(number, 22)
        for where, seconds in changes:
            times[where] += seconds
        yield name, times, {}
    times = 5 + noise(100, 23)
    yield "a clock that passes too little time", times, {"clock": 0.5}
    yield "a clock of whole seconds", times, {"clock": 1.0, "whole": True}
    yield "a pause behind each line", times, {"clock": 1.0, "pauses": dict.fromkeys(range(100), 0.06)}
    yield "a clock that is set back once", times, {"clock": 1.012, "back": (60,)}
    yield "times of a clock of whole seconds", np.diff(np.floor(np.cumsum(20.4 + 2 * noise(400, 24)))), {"digits": 0}
    yield "two modes", 5 + noise(400, 25) / 3 + 0.5 * (np.arange(400) // 7 % 2), {}
    yield "small stalls", 5 + noise(400, 26) / 4 + 0.35 * np.isin(np.arange(400), (100, 300)), {}
    yield "stalls in lines of ten", 5 + noise(40, 27) + 0.75 * np.isin(np.arange(40), (10, 25)), {"every": 10}
    yield "scatter without bound", np.array([5.0, 5.1, 5.0, 900.0, 5.2, 5.0]), {}
    yield (
        "few checkpoints",
        5 + noise(200, 28) + 10.0 * np.isin(np.arange(200), (9, 109)),
        {"checkpoints": (9, 109, 200)},
    )
    yield "words before quick lines", 5 + noise(60, 29), {"checkpoints": (20, 40)}
    often = 5 + noise(60, 30) + 15.0 * (np.arange(60) == 30)
    yield "words before most lines", often, {"checkpoints": range(60)}
    yield "words before every second line", often, {"checkpoints": range(2, 60, 2)}
    tens = np.concatenate([[1], np.arange(10, 151, 10)])
    for first, second in ((7.0, 5.0), (250.0, 5.0)):
        yield f"the first iteration alone, {first:g} s", np.array([first, second, *(5 + noise(14, 31))]), {"ends": tens}
    yield "a start that fades in noise", 5 + 2.5 * np.exp(-np.arange(400) / 8) + 5 * noise(400, 34), {}
    gap = np.concatenate([np.arange(1, 26), np.arange(76, 101)])
    yield "no lines in the middle", 5 + noise(50, 32), {"ends": gap, "clock": 1.0, "pauses": {25: 252.0}}
    yield "an excerpt", 5 + noise(50, 33), {"ends": np.arange(11, 61)}


CHANGED: tuple[tuple[str, int, float, list[tuple[Any, float]]], ...] = (
    ("a slower second half", 201, 5, [(slice(101, None), 0.5)]),
    ("a level that comes back inside", 500, 10, [(slice(100), 0.5), (slice(350, 450), 0.5)]),
    ("stalls near the end", 300, 5, [([290, 294, 298, 299], 1.5)]),
    ("faster at the end", 200, 5, [(slice(160, None), -1.0)]),
    ("a slow end that it came back from", 300, 5, [(slice(100, 140), 0.75), (slice(270, None), 1.0)]),
    ("a slow start of 30 %", 400, 5, [(slice(120), 1.0)]),
    ("a slow start of 25 %", 100, 5, [(slice(25), 1.5)]),
    ("two steps down at the end", 400, 5, [(slice(280, 340), 0.3), (slice(340, None), 0.9)]),
    ("a late line and a short one", 200, 5, [(99, 2.0), (100, -4.0)]),
    ("a line too late and a short one", 200, 5, [(99, 4.5), (100, -4.0)]),
    ("short, slow and two at once", 200, 5, [(slice(3), 20.0), (slice(60, 62), -4.5), (slice(190, None), 2.0)]),
    ("a slow last line", 60, 5, [(59, 1.5)]),
    ("slow at the end of half the lines", 100, 5, [(slice(50, None), 0.5)]),
)
"""Name, number of lines, their scatter in units of 0.2 %, and by how many seconds which of them are slower."""


def lines_of(
    times: "np.typing.NDArray[np.float64]",
    *,
    every: int = 1,
    ends: "np.typing.NDArray[np.int64] | None" = None,
    whole: bool = False,
    digits: int = 4,
    clock: float | None = None,
    checkpoints: "range | tuple[int, ...]" = (),
    back: tuple[int, ...] = (),
    pauses: dict[int, float] | None = None,
) -> Iterator[str]:
    ends = every * np.arange(1, len(times) + 1) if ends is None else ends
    total, now = ends[-1], 1.7e9
    for index, iteration in enumerate((*ends, total + 1)):
        if index in checkpoints:
            yield f"  successfully saved checkpoint at iteration {iteration - 1:7d} to ckpt\n"
        if index == len(times):
            return
        seconds = times[index]
        facts = {"samples": 96 * iteration, "s": f"{seconds:.{digits}f}", "loss": 9 - 0.00123 * iteration}
        if clock:
            now += every * seconds * clock + (pauses or {}).get(index, 0.0) - (30.0 if index in back else 0.0)
            facts["stamp"] = math.ceil(now) if whole else now
        yield line(iteration, total, **facts, lr=1e-4, batch=96)


def figures_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, times, form in series():
        path = folder / f"{name}.log"
        path.write_text("".join(lines_of(times, **form)))
        log = nlp_bench.read_log(path, sequence_length=2048, num_gpus=384)
        result = nlp_bench.measure(log)
        (run,) = result.to_dict()["runs"]
        found[name] = {key: run[key] for key in KEYS}
        found[name]["contradictions"] = [[one["code"], one["weight"], one["lines"]] for one in run["contradictions"]]
        found[name]["reasons"] = run["reasons"]
        steady_s = result.time_to_report_s.steady
        verdicts = [nlp_bench.measure(log, limit=share * steady_s).verdict for share in PLACES] if steady_s else []
        found[name]["verdicts"] = [one.to_json() for one in verdicts if one]
        bound = replay(enumerate(times.tolist(), 1), 0.01, 1) if not form.keys() & {"every", "ends"} else None
        found[name]["until"] = bound.to_json() if bound else None
    return {"logs": found, "statistics": statistics()}


def statistics() -> dict[str, Any]:
    calm = Uncertainty(num_iterations=400, noise=0.001, degrees=30)
    stalled = Uncertainty(
        num_iterations=400, noise=0.001, degrees=30, num_stalls=3, stalls=9, stalls_squared=41, at_end=4, unseen=4,
        switching=0.002, num_switches=5, above_fast=0.01, below_slow=0.02,
    )  # fmt: skip
    one = Estimate(seconds_per_token=1e-5, standard_error=2e-8, degrees=30, uncertainty=stalled)
    two = Estimate(seconds_per_token=1.02e-5, standard_error=3e-8, degrees=8)
    runs = over_runs([1.0e-5, 1.01e-5, 0.99e-5, 1.03e-5])
    return {
        "sides": [calm.sides(), calm.sides(4), stalled.sides(), stalled.sides(0.5), stalled.sides(9)],
        "intervals": [one.interval(), two.interval(), runs.interval(), one.relative_half_width()],
        "ratios": [list(vars_of(ratio_of(*pair))) for pair in ((one, two), (two, one), (two, runs))],
        "student_t": [student_t(p, n) for p in (0.6, 0.975, 0.9999) for n in (1, 2.5, 30, 1e6)],
        "variance ratio": [variance_ratio_tail(ratio, 4, 9) for ratio in (0.3, 1.0, 5.0)],
        "least iterations": [least_iterations(within, every) for within in (0.01, 0.05) for every in (1, 10)],
    }


def vars_of(found: object) -> Iterator[float]:
    return (getattr(found, name) for name in ("ratio", "low", "high", "p_value"))


def differences(found: Any, wanted: Any, where: str = "") -> Iterator[str]:
    if isinstance(wanted, dict):
        for name in {**wanted, **found}:
            yield from differences(found.get(name), wanted.get(name), f"{where}/{name}")
    elif isinstance(wanted, list) and isinstance(found, list | tuple) and len(found) == len(wanted):
        for index, pair in enumerate(zip(found, wanted, strict=True)):
            yield from differences(*pair, f"{where}/{index}")
    elif isinstance(wanted, float) and isinstance(found, int | float):
        if not math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-15):
            yield f"{where}: {found!r} instead of {wanted!r}"
    elif found != wanted:
        yield f"{where}: {found!r} instead of {wanted!r}"


@pytest.mark.slow
def test_the_figures_are_those_that_were_kept(tmp_path: Path) -> None:
    found = json.loads(json.dumps(figures_of(tmp_path)))
    assert list(differences(found, json.loads(FILE.read_text()))) == []


@pytest.mark.parametrize("degrees", [1, 2.5, 10, 300])
def test_the_distributions_are_those_of_scipy(degrees: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    for t in (-30, -3, -0.1, 0, 0.05, 0.5, 1, 4, 30):
        assert student_cdf(t, degrees) == pytest.approx(stats.t.cdf(t, degrees), rel=1e-9, abs=1e-12)
    for ratio in (0.05, 0.5, 1, 2, 9):
        for other in (1, 4, 50):
            tail = stats.f.sf(ratio, degrees, other)
            assert variance_ratio_tail(ratio, degrees, other) == pytest.approx(tail, rel=1e-8)
    assert student_t(0.975, degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-9)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        made = figures_of(Path(place))
    logs = ",\n".join(f"{json.dumps(name)}: {json.dumps(record)}" for name, record in made["logs"].items())
    FILE.write_text(f'{{"logs": {{\n{logs}\n}},\n"statistics": {json.dumps(made["statistics"])}}}\n')
