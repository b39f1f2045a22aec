"""From measured runs of this machine to constants that predict it better: `nlp-bench plan --learn`.

Measured seconds of an iteration are compared with predicted ones. The logarithms of up to three factors (compute, network, overhead)
are normally distributed around 0 before the runs are seen, as wide as the committed interval is, and so are the residuals, as wide as
each run's own interval and what no factor explains (Gaussian regression with a prior; Bishop 2006, Pattern Recognition and Machine
Learning, section 3.3; the model is linearised again at each step).
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nlp_bench.errors import NlpBenchError
from nlp_bench.plan.configurations import Configurations
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.learn.learned import KINDS, NORMAL_90, Learned, scaled, with_lesson
from nlp_bench.plan.learn.rows import Row, read_rows
from nlp_bench.plan.of_run import configuration_of

Values = npt.NDArray[np.float64]
Predict = Callable[[Values], Values]
"""Takes the logarithms of the factors of KINDS, returns the seconds of each row."""
STEPS = 12
"""Of the linearisation; it stands still after about five."""
NUDGE = 1e-4
"""Of a logarithm, to see what a factor changes."""
LAYOUT_NOISE = 0.02
"""Standard deviation of the logarithm that no factor explains, before the runs are seen: identical published configurations differ
by 2 % from their mean (docs/accuracy.md)."""
UNSEEN_LAYOUTS = 0.05
"""The same of layouts and models that were not run, while fewer than ROWS_PER_FACTOR were: so far do published points lie from their
prediction when the median of their source and GPU is taken out (1.48 times the median distance of 640 points)."""
BELIEF_ROWS = 4.0
"""As many rows that belief counts."""
ROWS_PER_FACTOR = 3
"""Different layouts from which on compute, network and overhead are told apart."""
WIDER = {"compute": 1.0, "network": 2.0, "overhead": 2.0}
"""How much less is known beforehand of a factor than of the whole."""
LEAST_SHARE = 0.03
"""Of the time that a kind must differ by between runs, to be told apart."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """A row with what was predicted of it before."""

    row: Row
    """The measured run."""
    before: float
    """Predicted seconds."""
    width: float
    """Standard deviation of the logarithm that the interval before stands for."""
    gpu: str
    """What it ran on."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What was learned."""

    constants: Constants
    """The constants with it."""
    learned: Learned
    """The factors and the interval."""
    errors: dict[str, float]
    """Standard error / factor; of kinds that were not told apart the common one."""
    together: bool
    """Whether one factor stands for all."""
    known: tuple[Known, ...]
    """The rows that counted."""
    after: tuple[float, ...]
    """Their predicted seconds with what was learned."""
    refused: tuple[str, ...]
    """What did not count, and why."""

    def text(self) -> str:
        """Return the report: before and after, the factors, what was refused."""
        from nlp_bench.plan.learn.text import report  # noqa: PLC0415  # only who prints pays for it

        return report(self)


def learned(constants: Constants, paths: Sequence[Path | str]) -> Constants:
    """Return the constants with what the runs below `paths` teach. Raises NlpBenchError where no run counts."""
    return learn(constants, paths).constants


def learn(constants: Constants, paths: Sequence[Path | str], system: str | None = None) -> Lesson:
    """Learn from the runs below `paths`: of `system`, or of the machine that most of them ran on.

    Raises UsageError for a path without runs, NlpBenchError, with the reason of each, where none counts.
    """
    rows, refused = read_rows(paths)
    found, more = _predicted(rows, constants, system)
    refused += more
    if not found:
        raise NlpBenchError("--learn: no run counts:\n  " + "\n  ".join(refused))
    configurations = [c for c, _ in found]

    def predict(logarithms: Values) -> Values:
        now = scaled(constants, dict(zip(KINDS, np.exp(logarithms).tolist(), strict=True)))
        return np.array([_seconds(c, now)[0] for c in configurations])

    return fitted(constants, [known for _, known in found], predict, refused)


def fitted(constants: Constants, known: Sequence[Known], predict: Predict, refused: Sequence[str] = ()) -> Lesson:
    """Return the posterior of the factors and what it means for the interval."""
    found = posterior(known, predict)
    logarithms = found.theta @ found.design
    errors = np.sqrt(np.einsum("ik,ij,jk->k", found.design, found.covariance, found.design))
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    system = known[0].row.run.system.name
    what = Learned(
        system=system,
        factors={kind: round(float(value), 6) for kind, value in zip(KINDS, np.exp(logarithms), strict=True)},
        low=round(float(np.exp(-NORMAL_90 * found.sigma)), 6),
        high=round(float(np.exp(NORMAL_90 * found.sigma)), 6),
        source=f"learned from {len(known)} run{'s' if len(known) > 1 else ''} of {system} ({known[0].gpu}), {today}",
    )
    return Lesson(
        constants=with_lesson(constants, what),
        learned=what,
        errors={kind: float(error) for kind, error in zip(KINDS, errors, strict=True)},
        together=len(found.theta) == 1,
        known=tuple(known),
        after=tuple(float(value) for value in predict(logarithms)),
        refused=tuple(refused),
    )


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Normal distribution of the logarithms of F factors."""

    theta: Values
    """Mean, shape [F]."""
    covariance: Values
    """Shape [F, F]."""
    design: Values
    """Which of KINDS each stands for, shape [F, 3]."""
    sigma: float
    """Standard deviation of the logarithm of a new measurement / its prediction."""


def posterior(known: Sequence[Known], predict: Predict) -> Posterior:
    """Return what the rows say about the factors."""
    design = _design(known, _shares(predict, np.zeros(len(KINDS))))
    width = float(np.median([one.width for one in known]))
    wider = np.array([WIDER[kind] for kind in KINDS]) if len(design) > 1 else np.ones(len(KINDS))
    belief = (width * np.max(design * wider, axis=1)) ** -2.0
    target = np.log([one.row.seconds for one in known])
    noise = np.array([one.row.noise for one in known])
    theta, spread = np.zeros(len(design)), LAYOUT_NOISE
    for _ in range(STEPS):
        slope = _shares(predict, theta @ design) @ design.T
        weight = 1 / (noise**2 + spread**2)
        precision = slope.T @ (weight[:, None] * slope) + np.diag(belief)
        residual = target - np.log(predict(theta @ design))
        theta = theta + np.linalg.solve(precision, slope.T @ (weight * residual) - belief * theta)
        excess = np.maximum((target - np.log(predict(theta @ design))) ** 2 - noise**2, 0).sum()
        spread = float(np.sqrt((BELIEF_ROWS * LAYOUT_NOISE**2 + excess) / (BELIEF_ROWS + len(known))))
    covariance = np.linalg.inv(precision)
    # What is not known of the factors, where it matters most among the rows; what they do not explain; other layouts; what repeats differ by.
    doubt = float(np.max(np.einsum("ni,ij,nj->n", slope, covariance, slope)))
    unseen = UNSEEN_LAYOUTS if len({one.row.layout for one in known}) < ROWS_PER_FACTOR else 0.0
    sigma = min(float(np.sqrt(doubt + spread**2 + unseen**2 + float(np.median(noise)) ** 2)), max(width, spread))
    return Posterior(theta=theta, covariance=covariance, design=design, sigma=sigma)


def _shares(predict: Predict, logarithms: Values) -> Values:
    """Return how much of each row's time grows with each of KINDS, shape [rows, 3]."""
    here = np.log(predict(logarithms))
    nudged = [np.log(predict(logarithms + NUDGE * unit)) for unit in np.eye(len(KINDS))]
    return np.asarray((np.array(nudged) - here).T / NUDGE)


def _design(known: Sequence[Known], shares: Values) -> Values:
    """Return which factors are one, shape [factors, 3]: rows of KINDS; one for all below ROWS_PER_FACTOR different layouts.

    A kind whose share of the time hardly differs between the runs is not told apart from compute.
    """
    layouts = {one.row.layout for one in known}
    if len(layouts) < ROWS_PER_FACTOR:
        return np.ones((1, len(KINDS)))
    apart = [float(np.ptp(shares[:, place])) >= LEAST_SHARE for place in range(1, len(KINDS))]
    own = [np.eye(len(KINDS))[place] for place, is_apart in enumerate(apart, 1) if is_apart]
    rest = np.array([1.0, *(0.0 if is_apart else 1.0 for is_apart in apart)])
    return np.array([rest, *own])


def _predicted(
    rows: Sequence[Row], constants: Constants, system: str | None
) -> tuple[list[tuple[Configurations, Known]], list[str]]:
    wanted = system or next(iter(Counter(row.run.system.name for row in rows).most_common(1)), ("", 0))[0]
    found: list[tuple[Configurations, Known]] = []
    refused: list[str] = []
    for row in rows:
        one = _known(row, constants, wanted)
        if isinstance(one, str):
            refused.append(f"{row.source}: {one}")
        elif found and one[1].gpu != found[0][1].gpu:
            refused.append(f"{row.source}: ran on {one[1].gpu}, the others on {found[0][1].gpu}")
        else:
            found.append(one)
    return found, refused


def _known(row: Row, constants: Constants, system: str) -> tuple[Configurations, Known] | str:
    if row.run.system.name != system:
        return f"ran on {row.run.system.name}, not on {system}: machines are learned one by one"
    try:
        c = configuration_of(row.run, constants)
    except NlpBenchError as error:
        return str(error)
    total, high = _seconds(c, constants)
    gpu = row.run.system.gpu.name if row.run.system.gpu else "CPU"
    return c, Known(row=row, before=total, width=float(np.log(high / total)) / NORMAL_90, gpu=gpu)


def _seconds(c: Configurations, constants: Constants) -> tuple[float, float]:
    """Return the seconds of an iteration and the upper end of their interval."""
    found = forecast(c, constants)
    total, high = (np.asarray(value, dtype=np.float64).reshape(-1)[0] for value in (found.seconds.total, found.high))
    return float(total), float(high)
