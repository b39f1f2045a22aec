"""Sweeps: all configurations of one workload on one machine with equal GPUs, and which of them may be the best.

A configuration is ruled out where another one is faster by a one-sided Welch test at (1 - level) / (number of configurations - 1), and
beyond what an interval holds besides (`ratio_of`). Nothing is decided where one of the two fastest
is doubted (`RunResult.doubts`).
The truly best one is then kept with a probability of at least `level`: it has number - 1 rivals, each of which beats it by chance
with at most that share (Bonferroni), however the best one of the data was chosen. This is subset selection (Gupta 1965,
doi:10.1080/00401706.1965.10490251) as it follows from comparisons with the best (Hsu 1984, doi:10.1214/aos/1176346725), with Welch's
degrees of freedom in place of equal variances. tests/support/winners_study.py measures the probability. The report is a table,
JSON, CSV, markdown and plots.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from nlp_bench.analysis.points import (
    FOLLOWS,
    MAX_CELL,
    Point,
    below_tables,
    doubts_of,
    is_cpu,
    num_gpus_of,
    points_of,
    says_model,
    title,
    unplaced_json,
    varying_in,
    words_of,
    workload_key,
)
from nlp_bench.analysis.repeats import digest, grouped, why_doubted
from nlp_bench.escape import end_of, ends_of, some
from nlp_bench.immutable import immutable
from nlp_bench.measure.estimate import LEVEL, Estimate, Ratio, ratio_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import FREE, Value, heading
from nlp_bench.show.chart import Chart, HeatMap, Series
from nlp_bench.show.table import (
    Column,
    Style,
    as_csv,
    as_document,
    columns_of,
    documents,
    duration,
    interval,
    label,
    number,
    percentage,
    rate,
    shown,
    tokens_in_words,
)

MAX_NAMED = 6  # winners that the sentence names at most


def winners(estimates: Sequence[Estimate]) -> list[bool]:
    """Return for each configuration whether it may be the best; at least the fastest one is."""
    if len(estimates) < 2:
        return [True] * len(estimates)
    share = (1 - LEVEL) / (len(estimates) - 1)
    least = NormalDist().inv_cdf(1 - share)  # Student's t asks for at least as much as the normal distribution
    seconds = np.log([each.seconds_per_token for each in estimates])
    errors = np.array([each.standard_error / each.seconds_per_token for each in estimates])
    kept = []
    for index, slower in enumerate(estimates):
        leads = (seconds[index] - seconds) / np.sqrt(errors[index] ** 2 + errors**2)
        ahead = np.flatnonzero(leads > least)
        rivals = ahead[np.argsort(-leads[ahead])].tolist()  # the clearest first: one is enough
        kept.append(not any(ratio_of(slower, estimates[one], 1 - 2 * share).low > 1 for one in rivals))
    return kept


class Standing(str, Enum):
    """The result of one configuration."""

    WINNER = "winner"  # the only one that may be the best
    TIED = "tied for best"  # may be the best, as others may
    SLOWER = "slower"  # another one is faster beyond doubt
    ALONE = "alone"  # the only one with an interval, so that there is nothing to compare it with
    OPEN = "not decided"  # may be the best, if a doubted one is not
    DOUBTED = "doubted"  # has a rate that proves nothing: `RunResult.doubts`
    UNDECIDED = "no interval"  # has a rate without an interval, so that it cannot be judged
    FAILED = "no number"  # no run of it has a number
    CONTRADICTED = "not ranked"  # its log says that something else ran than run.json requested


@immutable
class Ranked:
    """One configuration."""

    point: Point
    rank: int | None  # 1 is the fastest measured; None without a rate, and with a doubted one
    standing: Standing
    ratio: Ratio | None  # its rate / that of the fastest with an interval; None without one and for the fastest itself


@immutable
class Sweep:
    """Configurations that may be ranked against each other."""

    title: str
    num_gpus: int
    is_cpu: bool
    is_known: bool  # whether the model that was trained is known
    rows: tuple[Ranked, ...]  # the fastest first, then what is doubted, then what has no number
    names: tuple[str, ...]  # the settings in which configurations differ
    open_by: tuple[str, ...] = ()  # the doubts about the two fastest: with any there is no winner

    @property
    def heading(self) -> str:
        """What was trained where and on how much."""
        what = "CPU rank" if self.is_cpu else "GPU"
        return f"{self.title}, {self.num_gpus} {what}{'' if self.num_gpus == 1 else 's'}"

    @property
    def is_worth_a_note(self) -> bool:
        """Whether two or more configurations are known to differ, and some can be judged."""
        has_failed = all(row.rank is None for row in self.rows)
        return (
            len(self.rows) > 1
            and bool(self.names)
            and self.is_known
            and bool(has_failed or self.winners or self.open_by)
        )

    @property
    def winners(self) -> list[Ranked]:
        """Those that may be the best."""
        return self.of(Standing.WINNER, Standing.TIED)

    @property
    def is_of_single_runs(self) -> bool:
        """Whether one run of each configuration counts, so that the intervals do not hold the scatter between runs."""
        counted = [row.point for row in self.rows if row.rank]
        return all(point.num_counted == 1 for point in counted) and any(point.estimate for point in counted)

    @property
    def caution(self) -> str:
        """What to add to a winner by single runs; empty for others."""
        is_named = self.is_of_single_runs and self.winners
        return "; one run each, so what runs differ by is not in it: repeat them" if is_named else ""

    @cached_property
    def _cells(self) -> dict[str, dict[str, str]]:
        texts = {name: sorted({words_of(_value(row, name)) for row in self.rows}) for name in self.names}
        return {name: dict(zip(all_, ends_of(all_, MAX_CELL), strict=True)) for name, all_ in texts.items()}

    def cell(self, row: Ranked, name: str) -> str:
        """Return a setting that varies as text for a table, of a long one what tells it from the others; missing is empty."""
        return self._cells[name][words_of(_value(row, name))]

    def of(self, *standings: Standing) -> list[Ranked]:
        """Return the configurations with one of these standings."""
        return [row for row in self.rows if row.standing in standings]

    def words(self, row: Ranked) -> str:
        """Return the settings in which the configuration differs from the others, or the source where none is known."""
        settings = [f"{heading(name)} {self.cell(row, name) or 'not stated'}" for name in self.names]
        return ", ".join(settings) or row.point.entries[0].source

    def sentence(self) -> str:
        """Return the winner, in one sentence."""
        found, undecided = self.winners, self.of(Standing.UNDECIDED)
        lost, doubted = self.of(Standing.FAILED, Standing.CONTRADICTED), self.of(Standing.DOUBTED)
        if len(lost) == len(self.rows):
            return "no winner: every configuration failed"
        if self.open_by:
            text = f"not decided: {'; '.join(self.open_by)}"
        elif alone := self.of(Standing.ALONE):
            but = " that nothing contradicts" if doubted else ""
            text = f"no winner can be named: {self.words(alone[0])} alone has an interval{but}"
        elif not found:
            fastest = self.words(self.rows[0])
            text = f"no winner can be named: no rate has an interval; the fastest measured is {fastest}"
        elif len(found) > 1:
            named = some(map(self.words, found), MAX_NAMED, "; ")
            text = f"a tie: {len(found)} configurations cannot be told from the best at 95 %: {named}"
        elif judged := self.of(Standing.SLOWER):
            others = f"each of the {len(judged)} others" if len(judged) > 1 else "the other one"
            text = f"winner: {self.words(found[0])}, faster than {others} at 95 %"
        else:
            text = f"the only configuration with a number: {self.words(found[0])}"
        if doubted and not self.open_by:
            why = why_doubted(run for row in doubted for run in row.point.counted)
            text += f"; {len(doubted)} cannot be judged: {'; '.join(why)}"
        text += f"; {len(lost)} of {len(self.rows)} configurations have no number" if lost else ""
        return text + (f"; {len(undecided)} without an interval cannot be judged" if undecided else "")


@immutable
class SweepReport:
    """Everything that the writers need."""

    sweeps: Sequence[Sweep]  # one for each workload, machine and number of GPUs
    unplaced: Sequence[RunResult]  # runs whose number of GPUs is not known
    tokens: int

    def to_json(self) -> dict[str, Any]:
        """Return the record nlp-bench/sweep/1; missing is null."""
        return {
            "schema": "nlp-bench/sweep/1",
            "tokens": self.tokens,
            "sweeps": [
                {
                    "workload": sweep.title,
                    "num_gpus": sweep.num_gpus,
                    "accelerator": "cpu" if sweep.is_cpu else None,
                    "varies": list(sweep.names),
                    "winners": [digest(row.point.entries[0]) for row in sweep.winners],
                    "sentence": sweep.sentence(),
                    "configurations": [record(sweep, row, self.tokens) for row in sweep.rows],
                }
                for sweep in self.sweeps
            ],
            "unplaced": unplaced_json(self.unplaced),
        }


def sweep_of(entries: Iterable[RunResult], tokens: int, *, allow_measured: bool = False) -> SweepReport:
    """Return the rankings of `entries`."""
    entries = list(entries)
    groups = grouped(filter(num_gpus_of, entries), lambda entry: (workload_key(entry), num_gpus_of(entry)))
    return SweepReport(
        sweeps=[_sweep(group, allow_measured=allow_measured) for group in groups],
        unplaced=[entry for entry in entries if not num_gpus_of(entry)],
        tokens=tokens,
    )


def winner_notes(entries: Iterable[RunResult], *, allow_measured: bool = False) -> list[str]:
    """Return a line per sweep that a report happens to hold: several configurations of one workload on equal GPUs."""
    found = sweep_of((entry for entry in entries if not entry.published), 1, allow_measured=allow_measured)
    return [f"{each.heading}: {each.sentence()}{each.caution}" for each in found.sweeps if each.is_worth_a_note]


def _sweep(entries: Sequence[RunResult], *, allow_measured: bool) -> Sweep:
    points = points_of(entries, allow_measured=allow_measured)
    points.sort(key=lambda point: (not point.tokens_per_second, bool(point.doubts), -(point.tokens_per_second or 0)))
    sound = [point for point in points if point.tokens_per_second and not point.doubts]
    judged = [(point, point.estimate) for point in sound if point.estimate]
    # At the speeds at which the runs end another one may be the best: nobody knows which speed lasts.
    slower = [point.pool.slower_by_ends for point, _ in judged]
    ends = [
        replace(one, seconds_per_token=by * one.seconds_per_token, standard_error=by * one.standard_error)
        for by, (_, one) in zip(slower, judged, strict=True)
    ]
    kept = zip(winners([estimate for _, estimate in judged]), winners(ends), strict=True)
    best = [id(point) for (point, _), is_kept in zip(judged, kept, strict=True) if any(is_kept)]
    fastest = sorted(filter(_rate, points), key=_rate)[-2:]
    open_by = why_doubted(run for point in reversed(fastest) for run in point.counted)
    is_alone = len(judged) == 1 and sum(point.tokens_per_second is not None for point in points) > 1

    def row(rank: int, point: Point) -> Ranked:
        estimate, is_measured = point.estimate, bool(point.tokens_per_second) and not point.doubts
        standing = (
            Standing.CONTRADICTED if point.contradictions
            else Standing.FAILED if not point.tokens_per_second
            else Standing.DOUBTED if point.doubts
            else Standing.UNDECIDED if not estimate
            else Standing.SLOWER if id(point) not in best
            else Standing.OPEN if open_by
            else Standing.ALONE if is_alone
            else Standing.WINNER if len(best) == 1
            else Standing.TIED
        )  # fmt: skip
        is_behind = judged and is_measured and point is not judged[0][0]
        ratio = ratio_of(judged[0][1], estimate) if is_behind and estimate else None
        return Ranked(point=point, rank=rank if is_measured else None, standing=standing, ratio=ratio)

    return Sweep(
        title=title(entries[0]),
        num_gpus=num_gpus_of(entries[0]) or 0,
        is_cpu=all(map(is_cpu, entries)),
        is_known=says_model(entries[0]),
        rows=tuple(row(rank, point) for rank, point in enumerate(points, start=1)),
        names=varying_in(points),
        open_by=tuple(open_by),
    )


def _rate(point: Point) -> float:
    return point.tokens_per_second or 0.0


def record(sweep: Sweep, row: Ranked, tokens: int) -> dict[str, Any]:
    """Return one configuration; `settings` holds what it is, whether it varies or not."""
    point, rate, ratio = row.point, row.point.tokens_per_second, row.ratio
    low, high = point.interval or (None, None)
    names = dict.fromkeys((*FREE, *sweep.names))
    return {
        "rank": row.rank,
        "standing": row.standing.value,
        "identity": digest(point.entries[0]),
        "settings": {name: point.settings[name].value for name in names if name in point.settings},
        "outcome": point.outcome,
        "num_runs": point.num_runs,
        "num_counted": point.num_counted,
        "tokens_per_second": rate,
        "tokens_per_second_ci95_low": low,
        "tokens_per_second_ci95_high": high,
        "of_fastest": ratio.ratio if ratio else None,
        "of_fastest_ci95_low": ratio.low if ratio else None,
        "of_fastest_ci95_high": ratio.high if ratio else None,
        "tokens_per_second_per_gpu": rate / sweep.num_gpus if rate else None,
        "time_to_train_s": time_to_report_s(tokens, rate),
        "cause": point.cause,
        "supplied": [each.cell for each in point.supplied],
        "sources": [entry.source for entry in point.entries],
        "doubts": list(point.doubts),
    }


MAX_SOURCE = 30
LEGEND = (
    "tied for best: no other configuration is faster beyond doubt (Welch's t, one-sided, corrected for the number of rivals); "
    "the truly best one is among them with at least 95 %."
)


def _csv(report: SweepReport) -> str:
    """Return one line per configuration with full precision, a column for each setting that varies somewhere."""
    varied = dict.fromkeys(name for sweep in report.sweeps for name in sweep.names)
    rows = []
    for sweep in report.sweeps:
        for row in sweep.rows:
            found = record(sweep, row, report.tokens)
            settings = found.pop("settings")
            where = {"workload": sweep.title, "num_gpus": sweep.num_gpus}
            rows.append({**where, **{name: settings.get(name) for name in varied}, **found})
    return as_csv(list(rows[0]) if rows else ["workload", "num_gpus"], rows)


def _document(report: SweepReport, style: Style) -> str:
    blocks: list[list[str]] = []
    for sweep in report.sweeps:
        title, *space = style.heading(sweep.heading)
        ranked = style.table(sweep_table(sweep, report.tokens))
        blocks += [[title, *space, style.sentence(sweep.sentence()), *space, *ranked]]
        blocks += [[*map(style.sentence, _notes(sweep))]]
    points = (row.point for sweep in report.sweeps for row in sweep.rows)
    legend = (LEGEND,) if any(sweep.of(Standing.TIED) for sweep in report.sweeps) else ()
    return as_document(*blocks, *below_tables(style, report.unplaced, legend, points))


FORMATS: dict[str, Callable[[SweepReport], str]] = {
    **documents(_document, lambda report: report.to_json()),
    "csv": _csv,
}


def sweep_table(sweep: Sweep, tokens: int) -> list[Column]:
    """Return the columns that have anything in them, a row for each configuration."""
    has_failed = bool(sweep.of(Standing.FAILED, Standing.CONTRADICTED))
    rows = [list(_cells(sweep, row, tokens, has_failed=has_failed)) for row in sweep.rows]
    words = {heading(name) for name in sweep.names if any(isinstance(_value(row, name), str) for row in sweep.rows)}
    return shown(columns_of(rows, {"standing", "outcome", "source", *words}))


def _cells(sweep: Sweep, row: Ranked, tokens: int, *, has_failed: bool) -> Iterator[tuple[str, str]]:
    """Yield heading and cell of each column; of the settings those that vary."""
    point, counted, total = row.point, row.point.num_counted, row.point.num_runs
    time_s = time_to_report_s(tokens, point.tokens_per_second)
    yield "rank", number(row.rank)
    yield "standing", point.starred(row.standing.value, "num_gpus")
    for name in sweep.names:
        yield heading(name), sweep.cell(row, name)
    yield "runs", str(total) if counted == total else f"{counted} of {total}"
    yield "tokens/s", point.starred(rate(point.tokens_per_second))
    yield "95 %\ninterval", interval(point.interval)
    yield "of\nfastest", percentage(row.ratio.ratio if row.ratio else None, 1)
    yield f"time for\n{tokens_in_words(tokens)} tokens", point.starred(duration(time_s))
    yield "outcome", point.outcome if has_failed else ""
    yield "source", end_of(point.entries[0].source, MAX_SOURCE) + (f" +{total - 1}" if total > 1 else "")


def _notes(sweep: Sweep) -> list[str]:
    """Return why configurations have no number, and what the intervals contain, one sentence each."""
    lines = [
        row.point.remark if row.point.tokens_per_second else f"{sweep.words(row)}: {row.point.remark}"
        for row in sweep.rows
        if row.point.remark
    ]
    lines += doubts_of([row.point for row in sweep.rows])
    if sweep.is_of_single_runs:
        lines.append(
            "one run per configuration: the intervals hold the scatter within each run, not what runs differ by; repeat the winners"
        )
    samples = [sweep.words(row) for row in sweep.rows if row.point.one_sample and row.rank]
    return lines + [f"{words}: one sample, its window is a single logged interval" for words in samples]


MAX_SWEEPS = 4
MAX_CELLS = 20  # rows or columns of a heat map; larger ones become a ranking
DRAWN = (
    Standing.WINNER, Standing.TIED, Standing.SLOWER, Standing.ALONE, Standing.UNDECIDED, Standing.OPEN, Standing.DOUBTED
)  # fmt: skip
"""Each has a colour of its own."""


def sweep_charts(report: SweepReport) -> list[Chart | HeatMap]:
    """Return one plot for each sweep with a number and two configurations, those with the most of them first."""
    sweeps = [sweep for sweep in report.sweeps if len(sweep.rows) > 1 and sweep.rows[0].point.tokens_per_second]
    drawn = sorted(sweeps, key=lambda sweep: -len(sweep.rows))[:MAX_SWEEPS]
    keys = ["sweep", *(f"sweep-{number}" for number in range(2, MAX_SWEEPS + 1))]
    return [_heat_map(sweep, key) or _ranking(sweep, key) for sweep, key in zip(drawn, keys, strict=False)]


def _heat_map(sweep: Sweep, key: str) -> HeatMap | None:
    """Return rates over two settings, None where the configurations do not differ in exactly two."""
    free = [name for name in sweep.names if name not in FOLLOWS]
    names = list(sweep.names) if len(sweep.names) == 2 else free
    rows = [row for row in sweep.rows if row.standing not in {Standing.CONTRADICTED, Standing.DOUBTED}]  # not ranked
    if len(names) != 2:
        return None
    x_name, y_name = names
    across, down = _texts(sweep, rows, x_name), _texts(sweep, rows, y_name)
    place = {(down.index(_text(sweep, row, y_name)), across.index(_text(sweep, row, x_name))): row for row in rows}
    if len(place) < len(rows) or min(len(across), len(down)) < 2 or max(len(across), len(down)) > MAX_CELLS:
        return None
    marked = frozenset(at for at, row in place.items() if row.standing in {Standing.WINNER, Standing.TIED})
    cells = [[place.get((line, column)) for column in range(len(across))] for line in range(len(down))]
    return HeatMap(
        key=key,
        title=sweep.heading,
        description=sweep.sentence(),
        x_label=heading(x_name),
        y_label=heading(y_name),
        x_names=across,
        y_names=down,
        values=[[row.point.tokens_per_second if row else None for row in line] for line in cells],
        texts=[[_cell(row) if row else "" for row in line] for line in cells],
        marked=marked,
        note="Tokens per second." + (" Framed or bold: cannot be told from the best at 95 %." if marked else ""),
    )


def _ranking(sweep: Sweep, key: str) -> Chart:
    placed = [[pair for pair in enumerate(sweep.rows, start=1) if pair[1].standing is standing] for standing in DRAWN]
    series = [
        Series(
            name="with an interval" if standing is Standing.ALONE else standing.value,
            xs=[float(place) for place, _ in pairs],
            ys=[row.point.tokens_per_second or 0.0 for _, row in pairs],
            style="points",
            colour=colour,
            errors=[row.point.interval for _, row in pairs],
        )
        for colour, (standing, pairs) in enumerate(zip(DRAWN, placed, strict=True))
        if pairs
    ]
    failed = len(sweep.of(Standing.FAILED, Standing.CONTRADICTED))
    return Chart(
        key=key,
        title=sweep.heading,
        description=sweep.sentence(),
        x_label="row of the table",
        y_label="tokens per second",
        series=series,
        note="Bars are 95 % intervals." + (f" {failed} configuration(s) have no number." if failed else ""),
    )


def _cell(row: Ranked) -> str:
    rate = row.point.tokens_per_second
    return label(float(f"{rate:.4g}")) if rate else row.point.outcome.replace("OUT_OF_MEMORY", "no memory").lower()


def _value(row: Ranked, name: str) -> Value | None:
    found = row.point.settings.get(name)
    return found.value if found else None


def _text(sweep: Sweep, row: Ranked, name: str) -> str:
    return sweep.cell(row, name) or "none"


def _texts(sweep: Sweep, rows: list[Ranked], name: str) -> list[str]:
    """Return the values of a setting, numbers before words."""
    values = {_text(sweep, row, name): _value(row, name) for row in rows}

    def order(text: str) -> tuple[bool, float, str]:
        value = values[text]
        return not isinstance(value, int | float), float(value) if isinstance(value, int | float) else 0.0, text

    return sorted(values, key=order)
