"""The fit and its errors as tables."""

from collections.abc import Iterable

import numpy as np

from nlp_bench.plan.constants import FITTED as FITTED_MEMORY
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.text import column
from nlp_bench.show.table import as_text
from research.planner.data import Measured
from research.planner.reach import Intervals, coverages, family_coverages
from research.planner.solve import seconds_of
from research.planner.validate import (
    FITTED_SHARE,
    Held,
    Score,
    held_out,
    mean_score,
    out_of_fit,
    rankings,
    score_of,
    without_source,
)

BASELINES = (
    ("24-parameter roofline (fit on 1/3, another split)", "9.6", "14.1", "29.2"),
    ("Calculon, stock, 263 A100 rows", "18.0", "", "36.4"),
    ("identical configurations, published twice (spread)", "3.0", "", "9.9"),
)
"""Printed beside: median, macro and 90th percentile in per cent, computed once before this model was written (docs/accuracy.md)."""


def constants_table(fitted: Constants) -> list[str]:
    """Return the fitted constants beside their priors."""
    names = fitted.fitted()
    priors = [(fitted.time[name].prior or 1.0, fitted.time[name].spread or 1.0) for name in names]
    moved = [np.log(fitted[name] / prior) / spread for name, (prior, spread) in zip(names, priors, strict=True)]
    total = len(names) + len(FITTED_MEMORY)
    return [
        *as_text([
            column("constant", names, is_text=True),
            column("value", [f"{fitted[name]:.4g}" for name in names]),
            column("expected\nbefore", [f"{prior:g}" for prior, _ in priors]),
            column("moved by\nits spread x", [f"{value:+.1f}" for value in moved]),
        ]),
        f"{len(names)} fitted on times, {len(FITTED_MEMORY)} on memory: {total} of at most 40",
    ]  # fmt: skip


def accuracy(measured: Measured, constants: Constants, fitted: Constants) -> list[str]:
    """Cross-validate and return the tables; about half a minute."""
    two, one = (held_out(measured, constants, share) for share in (2 / 3, 1 / 3))
    left = without_source(measured, constants)
    cold, same = (score_of(measured, seconds_of(measured.configurations, one)) for one in (constants.cold(), fitted))
    split = mean_score(measured, two)
    tracks = {
        "cold: data sheets and expectations alone": cold,
        "fitted on 2/3 of the groups, tested on the rest": split,
        "fitted on 1/3 of the groups, tested on the rest": mean_score(measured, one),
        "fitted on all, the same rows": same,
    }
    figures = [(name, *map(_percent, (one.median, one.macro, one.p90))) for name, one in tracks.items()]
    names, medians, macros, p90s = zip(*figures, *BASELINES, strict=True)
    return [
        f"{len(measured)} rows, {int(measured.groups.max()) + 1} configuration groups; error = |predicted - published| / published; means of 5 splits",
        *as_text([
            column("", names, is_text=True),
            column("median\n%", medians),
            column("macro\n%", macros),
            column("p90\n%", p90s),
        ]),
        "",
        *_by_source(measured, split, left),
        "",
        *_sweeps(measured, two),
    ]  # fmt: skip


def _by_source(measured: Measured, split: Score, left: dict[str, Held]) -> list[str]:
    names = sorted(left)
    errors = {name: left[name].predicted / measured.seconds[left[name].places] - 1.0 for name in names}
    rows = np.concatenate([np.abs(errors[name]) for name in names if _is_megatron(measured, left[name])])
    medians = [float(np.median(np.abs(errors[name]))) for name in names]
    return [
        *as_text([
            column("source", names, is_text=True),
            column("rows", [str(len(errors[name])) for name in names]),
            column("splits\nmedian %", [_percent(split.by_source[name]) if name in split.by_source else "" for name in names]),
            column("left out\nmedian %", [_percent(value) for value in medians]),
            column("left out\nbias %", [f"{100 * float(np.median(errors[name])):+.1f}" for name in names]),
            column("Megatron\nfamily", ["yes" if _is_megatron(measured, left[name]) else "" for name in names], is_text=True),
        ]),
        f"leave one source out: Megatron family {float(np.median(rows)):.1%} median of rows; macro of all {np.mean(medians):.1%}",
        *_reference(measured, left),
    ]  # fmt: skip


def _is_megatron(measured: Measured, held: Held) -> bool:
    """Whether most rows are of a 3D-parallel framework: no parameters are gathered."""
    return bool(np.mean(measured.configurations.spread.sharding[held.places] < 2) > 0.5)


def _reference(measured: Measured, left: dict[str, Held]) -> list[str]:
    """Return the report times of the benchmark's own published results, predicted without them."""
    if "JSC" not in left:
        return []
    lines = []
    for place, seconds in zip(left["JSC"].places, left["JSC"].predicted, strict=True):
        c = measured.configurations
        factor = 20e6 / float(c.spread.global_batch_size[place] * c.network.sequence_length[place])
        published, predicted = factor * measured.seconds[place], factor * float(seconds)
        lines.append(
            f"JUWELS Booster without JSC's rows in the fit: {measured.ids[place]} {published:.2f} s published, "
            f"{predicted:.1f} s predicted, {predicted / published - 1:+.1%}"
        )
    return lines


def _sweeps(measured: Measured, held: list[Held]) -> list[str]:
    said = out_of_fit(measured, held)
    seen = ~np.isnan(said)
    found = rankings(measured.take(seen), said[seen])
    return as_text([
        column("sweep (rows that a split left out)", [one.name for one in found], is_text=True),
        column("rows", [str(one.rows) for one in found]),
        column("Spearman", [f"{one.spearman:.2f}" for one in found]),
        column("regret of\nthe best %", [_percent(one.regret) for one in found]),
    ])  # fmt: skip


def ablation_table(found: Iterable[tuple[str, Score]]) -> list[str]:
    """Return the errors without each term; the first of `found` is the whole model."""
    names, scores = zip(*found, strict=True)
    return as_text([
        column("left out", names, is_text=True),
        column("median\n%", [_percent(one.median) for one in scores]),
        column("macro\n%", [_percent(one.macro) for one in scores]),
        column("p90\n%", [_percent(one.p90) for one in scores]),
        column("worth\n(macro)", [f"{100 * (one.macro - scores[0].macro):+.1f}" for one in scores]),
    ])  # fmt: skip


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _by_family(found: Intervals, measured: Measured, constants: Constants) -> list[str]:
    """Return the ends by framework family, and how many rows they hold that fits had not seen."""
    rows = family_coverages(measured, constants, found.ends, held_out(measured, constants, FITTED_SHARE))
    ends = [found.ends[one.family] for one in rows]
    return as_text([
        column("family", [one.family for one in rows], is_text=True),
        column("rows", [str(one.rows) for one in rows]),
        column("sources", [str(one.sources) for one in rows]),
        column("lower\nend", [f"{one.low:.3f}" for one in ends]),
        column("upper\nend", [f"{one.high:.3f}" for one in ends]),
        column("groups left out,\nheld %", [_percent(one.share) for one in rows]),
        column("sources left out of fit\nand ends, held %", [_percent(one.held) for one in ends]),
    ])  # fmt: skip


def interval_tables(found: Intervals, measured: Measured, constants: Constants) -> list[str]:
    """Return what widens the interval, and how many rows it holds of each kind that fits had not seen."""
    rows = coverages(measured, constants, found)
    return [
        f"ends of the 90 % interval near the fitted rows, all families together: {found.shared.low:.3f} to {found.shared.high:.3f}",
        "",
        *_by_family(found, measured, constants),
        "",
        *as_text([
            column("away in", list(found.terms), is_text=True),
            column("lower end\n(log)", [f"{one.below:.3f}" for one in found.terms.values()]),
            column("upper end\n(log)", [f"{one.above:.3f}" for one in found.terms.values()]),
            column("from", [one.source for one in found.terms.values()], is_text=True),
        ]),
        "",
        *as_text([
            column("left out of the fit", [one.kind for one in rows], is_text=True),
            column("rows", [str(one.rows) for one in rows]),
            column("held by the\nnear ends %", [_percent(one.near) for one in rows]),
            column("held by the\ninterval %", [_percent(one.wide) for one in rows]),
            column("its ends\n(median)", [f"{one.low:.2f}-{one.high:.2f}" for one in rows]),
        ]),
    ]  # fmt: skip
