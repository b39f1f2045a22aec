"""From measured runs of a machine to constants that predict it better: `nlp-bench plan --learn` and `plan learn`.

Measured seconds of an iteration are compared with predicted ones. The logarithms of up to three factors (compute, network, overhead)
are normally distributed around 0 before the runs are seen, as wide as the committed interval is, and so are the residuals, as wide as
each run's own interval and what no factor explains (Gaussian regression with a prior; Bishop 2006, Pattern Recognition and Machine
Learning, section 3.3; the model is linearised again at each step).
"""

import datetime as dt
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.config.run import Run, read_run
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import real, write_text
from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Configurations
from nlp_bench.plan.constants import SCHEMA, Constants, constant_line
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.predict import or_reason
from nlp_bench.plan.problem import configuration_of
from nlp_bench.show.table import Column, as_text
from nlp_bench.walk import walk

KINDS = {"compute": "what the GPU computes", "network": "what it sends and receives", "overhead": "launches, iteration"}
"""Constants `scale_KIND` of table [time]."""
FAMILY = "megatron"  # the framework family of the runs: this package's trainer and Megatron-LM's own
NORMAL_90 = 1.645  # standard deviations to either end of a 90 % interval of a normal distribution
LEAST_NOISE = 0.005
"""Standard error / mean that is believed of any run: repeats on one machine differ by more than the scatter within one."""
STEPS = 12  # iterations of the linearisation; it converges in about five
NUDGE = 1e-4  # step of a logarithm for finite differences
LAYOUT_NOISE = 0.02
"""Standard deviation of the logarithm that no factor explains, before the runs are seen: identical published configurations differ
by 2 % from their mean (docs/accuracy.md)."""
UNSEEN_LAYOUTS = 0.05
"""The same for layouts and models that were not run, while fewer than ROWS_PER_FACTOR were: the distance of published points from their
prediction when the median of their source and GPU is removed (1.48 times the median distance of 640 points)."""
PRIOR_ROWS = 4.0  # rows that LAYOUT_NOISE, as a prior, weighs as much as
ROWS_PER_FACTOR = 3  # different layouts from which on compute, network and overhead are fitted separately
WIDER = {"compute": 1.0, "network": 2.0, "overhead": 2.0}  # factor on the prior's deviation of a kind fitted apart
LEAST_SHARE = 0.03  # share of the time by which a kind must differ between runs to be fitted separately
FAR = 2.5  # prior standard deviations beyond which a factor is doubted
WIDEST = 72  # characters of a layout in the report

Values = npt.NDArray[np.float64]
Predict = Callable[[Values], Values]  # from the logarithms of the factors of KINDS to the seconds of each row
Measure = Callable[[Path], dict[str, Any]]  # from a run's folder to the object of its result.json


@immutable
class Row:
    """One valid run."""

    source: str  # its folder
    run: Run
    seconds: float  # of one iteration, measured
    noise: float  # standard error / seconds, at least LEAST_NOISE

    @property
    def layout(self) -> str:
        """The configuration in short."""
        parallel, batch = self.run.parallel, self.run.batch
        sizes = f"tp {parallel.tensor} pp {parallel.pipeline} dp {parallel.data} mbs {batch.micro_batch_size}"
        return f"{self.run.model.name}, {parallel.num_gpus} ranks, {sizes} gbs {batch.global_batch_size}"


@immutable
class Known(Row):
    """A row with its prediction before learning."""

    before: float  # predicted seconds
    width: float  # standard deviation of the logarithm that corresponds to its interval
    gpu: str


@immutable
class Lesson:
    """What was learned of one machine, and from which runs."""

    constants: Constants  # the constants with the factors
    factors: Mapping[str, float]  # by KINDS: measured / predicted seconds with the constants before
    errors: Mapping[str, float]  # standard error / factor; the common one of kinds that were fitted together
    together: bool  # whether all kinds share one factor
    low: float  # lower end of the 90 % interval of the seconds / prediction, at most 1
    high: float  # upper end, at least 1
    source: str  # which runs, when
    known: tuple[Known, ...]  # the rows that counted
    after: tuple[float, ...]  # their predicted seconds with what was learned
    refused: tuple[str, ...]  # what did not count, and why


def learn(constants: Constants, paths: Sequence[Path | str], measure: Measure, system: str | None = None) -> Lesson:
    """Learn from the runs below `paths`, of `system` or most runs' machine; raises UsageError for no run, NlpBenchError where none counts."""
    rows, refused = read_rows(paths, measure)
    wanted = system or next(iter(Counter(row.run.system.name for row in rows).most_common(1)), ("", 0))[0]
    found: list[tuple[Configurations, Known]] = []
    for row in rows:
        one = or_reason(_known, row, constants, wanted)
        if isinstance(one, str):
            refused.append(f"{row.source}: {one}")
        elif found and one[1].gpu != found[0][1].gpu:
            refused.append(f"{row.source}: ran on {one[1].gpu}, the others on {found[0][1].gpu}")
        else:
            found.append(one)
    if not found:
        raise NlpBenchError("--learn: no run counts:\n  " + "\n  ".join(refused))
    configurations = [c for c, _ in found]

    def predict(logarithms: Values) -> Values:
        now = _scaled(constants, dict(zip(KINDS, np.exp(logarithms).tolist(), strict=True)))
        return np.array([_seconds(c, now)[0] for c in configurations])

    return fitted(constants, [known for _, known in found], predict, refused)


def read_rows(paths: Sequence[Path | str], measure: Measure) -> tuple[list[Row], list[str]]:
    """Return the valid runs below the paths, and what was refused; raises UsageError for a path that does not exist or holds no run."""
    rows: list[Row] = []
    refused: list[str] = []
    for folder in dict.fromkeys(folder for path in paths for folder in _folders(Path(path))):
        row = or_reason(_row, folder, measure)
        if isinstance(row, str):
            refused.append(f"{folder}: {row}")
        elif first := next((one for one in rows if replace(one, source=row.source) == row), None):
            # two runs never have all digits in common
            refused.append(f"{folder}: the run of {first.source} again, a copy")
        else:
            rows.append(row)
    return rows, refused


def _folders(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise UsageError(f"--learn {path}: there is no such file or folder")
    if path.is_file():
        if path.name not in {"result.json", "run.json"}:
            raise UsageError(
                f"--learn {path}: give a run's folder, its result.json, or a folder of runs; a log alone does not say its layout"
            )
        yield real(path.parent)
        return
    started = {"outcome.json", "result.json", "job.out"}  # JUBE's step `check` writes a run.json as well
    found = sorted({real(folder) for folder, names in walk(path) if "run.json" in names and started & set(names)})
    if not found:
        raise UsageError(f"--learn {path}: holds no run (a folder with run.json and outcome.json)")
    yield from found


def _row(folder: Path, measure: Measure) -> Row:
    measured = measure(folder).get("run")
    if not isinstance(measured, dict) or measured.get("outcome") != "VALID":
        outcome = measured.get("outcome") if isinstance(measured, dict) else None
        raise NlpBenchError(f"outcome {outcome}: only VALID runs count")
    rates = measured.get("tokens_per_second") or {}
    steady, interval = rates.get("steady"), rates.get("ci95")
    for name in ("global_batch_size", "sequence_length"):
        if not isinstance(measured.get(name), int | float) or not measured[name] > 0:
            raise NlpBenchError(f"result.json: {name} is {measured.get(name)!r}, not a number above 0")
    if not isinstance(steady, int | float) or not steady > 0:
        raise NlpBenchError("result.json has no steady tokens per second")
    noise = 0.1  # of a rate without interval; else a quarter of the 95 % interval's width, about 1.96 standard errors each way
    if interval and len(interval) == 2:
        noise = max(LEAST_NOISE, float(interval[1] - interval[0]) / steady / 4)
    tokens = float(measured["global_batch_size"]) * float(measured["sequence_length"])
    return Row(source=str(folder), run=read_run(folder / "run.json"), seconds=tokens / steady, noise=noise)


def _known(row: Row, constants: Constants, system: str) -> tuple[Configurations, Known]:
    if row.run.system.name != system:
        raise NlpBenchError(f"ran on {row.run.system.name}, not on {system}: machines are learned one by one")
    c = configuration_of(row.run, constants)
    total, high = _seconds(c, constants)
    gpu = row.run.system.gpu.name if row.run.system.gpu else "CPU"
    return c, Known(**vars(row), before=total, width=float(np.log(high / total)) / NORMAL_90, gpu=gpu)


def _seconds(c: Configurations, constants: Constants) -> tuple[float, float]:
    """Return the seconds of an iteration and the upper end of their interval."""
    found = forecast(c, constants)
    total, high = (np.asarray(value, dtype=np.float64).reshape(-1)[0] for value in (found.seconds.total, found.high))
    return float(total), float(high)


def _scaled(constants: Constants, factors: Mapping[str, float]) -> Constants:
    """Return the constants with their scales multiplied by `factors`, by KINDS."""
    scales = {f"scale_{kind}": constants[f"scale_{kind}"] * factor for kind, factor in factors.items()}
    return constants.with_values(scales)


def fitted(constants: Constants, known: Sequence[Known], predict: Predict, refused: Sequence[str] = ()) -> Lesson:
    """Return the posterior of the factors and what it means for the interval."""
    design, theta, covariance, sigma = posterior(known, predict)
    logarithms = theta @ design
    errors = np.sqrt(np.diag(design.T @ covariance @ design))
    factors = {kind: round(float(value), 6) for kind, value in zip(KINDS, np.exp(logarithms), strict=True)}
    low, high = (round(float(np.exp(side * NORMAL_90 * sigma)), 6) for side in (-1, 1))
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    runs = f"{len(known)} run{'s' if len(known) > 1 else ''}"
    source = f"learned from {runs} of {known[0].run.system.name} ({known[0].gpu}), {today}"
    return Lesson(
        constants=replace(_scaled(constants, factors), ends={**constants.ends, FAMILY: (low, high)}, reach=None),
        factors=factors,
        errors={kind: float(error) for kind, error in zip(KINDS, errors, strict=True)},
        together=len(theta) == 1,
        low=low,
        high=high,
        source=source,
        known=tuple(known),
        after=tuple(float(value) for value in predict(logarithms)),
        refused=tuple(refused),
    )


def posterior(known: Sequence[Known], predict: Predict) -> tuple[Values, Values, Values, float]:
    """Return what the rows say about the logarithms of F factors, which are normally distributed.

    Which of KINDS share each factor [F, 3], their mean [F], their covariance [F, F], and the standard deviation of the logarithm
    of a new measurement / its prediction.
    """
    design = _design(known, _shares(predict, np.zeros(len(KINDS))))
    width = float(np.median([one.width for one in known]))
    wider = np.array([WIDER[kind] for kind in KINDS]) if len(design) > 1 else np.ones(len(KINDS))
    prior = (width * np.max(design * wider, axis=1)) ** -2.0
    target = np.log([one.seconds for one in known])
    noise = np.array([one.noise for one in known])
    theta, spread = np.zeros(len(design)), LAYOUT_NOISE
    for _ in range(STEPS):
        slope = _shares(predict, theta @ design) @ design.T
        weight = 1 / (noise**2 + spread**2)
        precision = slope.T @ (weight[:, None] * slope) + np.diag(prior)
        residual = target - np.log(predict(theta @ design))
        theta = theta + np.linalg.solve(precision, slope.T @ (weight * residual) - prior * theta)
        excess = np.maximum((target - np.log(predict(theta @ design))) ** 2 - noise**2, 0).sum()
        spread = float(np.sqrt((PRIOR_ROWS * LAYOUT_NOISE**2 + excess) / (PRIOR_ROWS + len(known))))
    covariance = np.linalg.inv(precision)
    # Variances: of the factors, in the row where it is largest; of the residuals; of other layouts; of repeats.
    doubt = float(np.max(np.einsum("ni,ij,nj->n", slope, covariance, slope)))
    unseen = UNSEEN_LAYOUTS if len({one.layout for one in known}) < ROWS_PER_FACTOR else 0.0
    sigma = min(float(np.sqrt(doubt + spread**2 + unseen**2 + float(np.median(noise)) ** 2)), max(width, spread))
    return design, theta, covariance, sigma


def _shares(predict: Predict, logarithms: Values) -> Values:
    """Return how much of each row's time grows with each of KINDS, shape [rows, 3]."""
    here = np.log(predict(logarithms))
    nudged = [np.log(predict(logarithms + NUDGE * unit)) for unit in np.eye(len(KINDS))]
    return np.asarray((np.array(nudged) - here).T / NUDGE)


def _design(known: Sequence[Known], shares: Values) -> Values:
    """Return which of KINDS share a factor, shape [factors, 3]; below ROWS_PER_FACTOR different layouts all do.

    A kind whose share of the time hardly differs between the runs shares that of compute.
    """
    if len({one.layout for one in known}) < ROWS_PER_FACTOR:
        return np.ones((1, len(KINDS)))
    apart = [float(np.ptp(shares[:, place])) >= LEAST_SHARE for place in range(1, len(KINDS))]
    own = [np.eye(len(KINDS))[place] for place, is_apart in enumerate(apart, 1) if is_apart]
    rest = np.array([1.0, *(0.0 if is_apart else 1.0 for is_apart in apart)])
    return np.array([rest, *own])


def report(lesson: Lesson) -> str:
    """Return the report: measured against predicted before and after, the factors, the runs that did not count."""
    known = lesson.known
    measured, before = [one.seconds for one in known], [one.before for one in known]

    def off(predicted: Iterable[float]) -> list[float]:
        return [value / seconds - 1 for value, seconds in zip(predicted, measured, strict=True)]

    columns = [
        Column(heading="run", cells=[one.layout[:WIDEST] for one in known], is_text=True),
        Column(heading="measured s", cells=measured, form="{:.4g}".format),
        Column(heading="+-", cells=[one.noise for one in known], form="{:.1%}".format),
        Column(heading="before s", cells=before, form="{:.4g}".format),
        Column(heading="error", cells=off(before), form="{:+.1%}".format),
        Column(heading="after s", cells=list(lesson.after), form="{:.4g}".format),
        Column(heading="error", cells=off(lesson.after), form="{:+.1%}".format),
    ]
    lines = [lesson.source, "", *as_text(columns, has_rule=False)]
    lines += ["", "measured / predicted (with standard error):"]
    if lesson.together:
        number = len({one.layout for one in known})
        why = "the shares of network and overhead hardly differ between these runs"
        if number < ROWS_PER_FACTOR:
            plural = "s" if number > 1 else ""
            why = f"{number} layout{plural}; from three on compute, network and overhead may be told apart"
        rows = [("everything", "compute", f"one factor: {why}")]
    else:
        rows = [(f"{kind:<9}", kind, what) for kind, what in KINDS.items()]
    lines += [
        f"  {name} {lesson.factors[kind]:.3f} +- {lesson.errors[kind]:.1%}  ({what})" for name, kind, what in rows
    ]
    widest = max(one.width for one in known)
    half = max(1 - lesson.low, lesson.high - 1)
    lines.append(f"90 % interval of a prediction: about +-{half:.0%}, before +-{widest * NORMAL_90:.0%}")
    if far := [kind for kind, factor in lesson.factors.items() if abs(math.log(factor)) > FAR * widest]:
        lines.append(
            f"WARNING: {', '.join(far)}: farther from 1 than the interval before allows; were these runs made on what the constants "
            "describe (GPU, threads of a CPU rank, number format, software)?"
        )
    lines += [f"did not count: {line}" for line in lesson.refused]
    return "\n".join(lines) + "\n"


_TIME = re.compile(r"^([ \t]*\[[ \t]*time[ \t]*\][^\n]*\n)", re.MULTILINE)  # the head of table [time]


def write_learned(path: Path, lesson: Lesson, base: Path | None) -> None:
    """Write what was learned as a constants file: `base`, if any, with the learned factors and interval."""
    before = f'# Learned from runs, for `nlp-bench plan --constants`.\nschema = "{SCHEMA}"\n\n[time]\n'
    if base is not None:
        try:
            before = base.read_text(encoding="utf-8")
        except OSError as error:
            raise NlpBenchError(f"cannot read {base}: {error.strerror}") from error
    if "[interval]" in before or "\nscale_" in before:
        raise NlpBenchError(
            f"{base}: holds what was learned before; learn again from all runs, with the constants that calibrate wrote"
        )
    lines = [constant_line(f"scale_{kind}", factor, lesson.source) for kind, factor in lesson.factors.items()]
    before = before if _TIME.search(before) else f"{before}\n[time]\n"
    head, mark, tail = _TIME.split(before, maxsplit=1)
    ends = f"[interval]\nsource = {json.dumps(lesson.source)}\ngpu = {json.dumps(lesson.known[0].gpu)}\n{FAMILY} = {{ low = {lesson.low}, high = {lesson.high} }}\n"
    write_text(path, head + mark + "\n".join(lines) + "\n" + tail + "\n" + ends)
