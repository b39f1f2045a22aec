"""Cells for people: few columns, two decimals, an interval in one cell."""

from collections import Counter
from collections.abc import Iterator

from nlp_bench.analysis.repeats import apart_line, repeat_lines
from nlp_bench.measure.result import RunResult, supplied_lines
from nlp_bench.measure.throughput import LOGGED
from nlp_bench.report.report import ALL_FIELDS, PEOPLE, Report, sustained_s
from nlp_bench.show.table import TEXT, Column, Style

BRIEF = (
    "source", "outcome", "limit", "rules", "time_to_report_steady_s", "tokens_per_second_steady", "ci95"
)  # fmt: skip
"""Columns for a terminal where there are many runs, before the reason."""
MAX_ALIKE = 3  # runs with the same note that are named one by one, at most
MAX_LISTED = 12  # with more runs, each has its reason in its row, and a note on many is printed once, with their number
MAX_WHYS = 10  # causes for which there is no number that are listed, at most
_ALWAYS = ("source", "outcome", "time_to_report_reference_s", "tokens_per_second_reference")
_BY_NAME = {
    "global_batch_size": ("global_batch_size",),
    "num_gpus": ("num_gpus", "model_tflops_per_gpu", "mfu"),
    "gpu": ("mfu",),
    "precision": ("mfu",),
}
"""Supplied value to the cells that it changes, besides those of the rate."""


def readable(report: Report, *, style: Style = TEXT) -> list[Column]:
    """Return the columns that are worth showing; a cell that rests on a value that the log does not show ends in a star."""
    names: tuple[str, ...] = PEOPLE
    if is_many(report) and style is TEXT:
        has_other = any(entry.has_number and entry.steady is None for entry in report.entries)
        names = (*BRIEF, "time_to_report_reference_s") if has_other else BRIEF  # else the reason has more room
    elif all(entry.model is not None for entry in report.entries):  # runs of ours: the dialect says nothing new
        names = tuple(name for name in names if name != "dialect")
    stars = [starred(entry) for entry in report.entries]
    columns = {name: _column(name, report, stars, style) for name in names if name in report.people_fields}
    found = [column for name, column in columns.items() if name in _ALWAYS or any(column.shown)]
    if style is not TEXT and is_many(report):
        after = max(index for index, column in enumerate(found) if column.name in BRIEF) + 1
        whys = [_said(entry) for entry in report.entries]
        found.insert(after, Column(heading="reason", cells=whys, is_text=True))
    return found


def _column(name: str, report: Report, stars: list[set[str]], style: Style) -> Column:
    field = ALL_FIELDS[name]
    values = [field.shown(entry, report) for entry in report.entries]
    cells = ["" if value is None else str(value) if isinstance(value, str) else field.form(value) for value in values]
    marks = ["*" if cell and name in found else "" for cell, found in zip(cells, stars, strict=True)]
    width = max(map(len, marks), default=0)  # the digits of the others stay below each other
    cells = [cell and cell + mark.ljust(width) for cell, mark in zip(cells, marks, strict=True)]
    heading = field.heading if style is TEXT else field.wide or field.heading
    return Column(name=name, heading=heading, cells=cells, is_text=field.is_text)


def _said(entry: RunResult) -> str:
    return "; ".join((*entry.reason_texts, *entry.remarks))


def is_many(report: Report) -> bool:
    """Say whether there are more runs than are listed with all columns."""
    return len(report.entries) > MAX_LISTED


def starred(entry: RunResult) -> set[str]:
    """Return the columns that rest on what a person supplied."""
    names = {name for each in entry.supplied for name in _BY_NAME.get(each.name, ())}
    if any(each.changes_rate for each in entry.supplied):
        names |= {f"time_to_report_{kind}_s" for kind in ("steady", "reference", "sustained")}
        names |= {"tokens_per_second_steady", "model_tflops_per_gpu", "mfu", "joules_per_token", "energy_kwh", "cost"}
    return names


def notes(report: Report) -> list[str]:
    """Return one line per thing to know of runs; a note on several is there once, with the first. Of more than MAX_LISTED runs each has its reason in its row."""
    lines = list(_tally(report) if is_many(report) else _notes_of_each(report))
    lines += repeat_lines(report.repeats, report.tokens, report.limit_s)
    if not report.allow_measured and (apart := apart_line(report.entries)):
        lines.append(apart)
    if len(report.entries) > 1:
        from nlp_bench.analysis.sweep import winner_notes  # noqa: PLC0415  # one run has no rival

        lines += winner_notes(report.entries, allow_measured=report.allow_measured)
    lines += _without_cost(report)
    return lines + [passed.sentence() for passed in report.passed_over]


def _without_cost(report: Report) -> list[str]:
    """Return why there is no cost although a price was given."""
    if report.price_per_kwh is None:
        return []
    why = "no cost: no meter was read during the run, and the log states no energy"
    lines = [f"{e.source}: {why}" for e in report.entries if e.has_number and e.energy is None]  # else a remark says it
    many = f"{len(lines) - 1} more runs have no cost for the same reason"
    return lines if len(lines) <= MAX_ALIKE else [lines[0], many]


def _notes_of_each(report: Report) -> Iterator[str]:
    sources: dict[str, list[str]] = {}
    for entry in report.entries:
        if what := _said(entry):
            sources.setdefault(what, []).append(entry.source)
    for what, names in sources.items():
        alike = [f"{names[0]} and {len(names) - 1} more"] if len(names) > MAX_ALIKE else names
        yield from (f"{name}: {what}" for name in alike)


def _tally(report: Report) -> Iterator[str]:
    """Yield the counts per outcome, then the causes for which runs have no number, the most frequent first."""
    entries = report.entries
    numbered = sum(entry.has_number for entry in entries)
    ended = Counter(entry.outcome.value for entry in entries).most_common()
    counts = ", ".join(f"{count:,} {word}" for word, count in ended)
    yield f"{len(entries):,} runs: {counts}; {numbered:,} have a number, {len(entries) - numbered:,} have none."
    firsts = (entry.reason_texts[0] for entry in entries if entry.reason_texts and not entry.has_number)
    whys = Counter(firsts).most_common()
    told = [(why, count) for why, count in whys[:MAX_WHYS] if count > 1]
    yield from (f"no number ({count}): {why}" for why, count in told)
    if len(told) < len(whys):
        yield f"no number ({sum(count for _, count in whys[len(told) :])}): {len(whys) - len(told)} other causes, each in its row"


def legend(report: Report, *, is_brief: bool = False) -> list[str]:
    """Return what the columns mean, in plain sentences; `is_brief` where the table has those of BRIEF alone."""
    lines = [
        f"time s: seconds for a training on {report.tokens:,} tokens = tokens / (tokens per second).",
        "reference: batch x sequence / mean of every logged time, warm-up included. steady: over the window of iterations only.",
    ]
    if is_brief:
        lines.append("The whole reasons and all columns: --format csv, json or html, or --explain.")
    else:
        if any(sustained_s(entry, report) for entry in report.entries):
            found = [entry.throughput.sustained for entry in report.entries if entry.throughput]
            but = " but lines that are missing" if any(each and each.num_missing for each in found) else ""
            but += (
                "; of lines without dates, over the sum of their times"
                if any(each and each.clock == LOGGED for each in found)
                else ""
            )
            lines.append(
                f"sustained: over the wall clock from the first counted iteration to the last, nothing left out{but}."
            )
        if any(entry.efficiency and entry.efficiency.model_tflops_per_gpu for entry in report.entries):
            lines.append(
                "TFLOP/s per GPU: model FLOPs, causal attention counted as half; MFU: their share of the peak (--explain has all countings)."
            )
    lines += supplied_lines(((entry.source, entry.supplied) for entry in report.entries), MAX_ALIKE)
    if report.limit_s is not None:
        lines.append(
            f"limit: PASS or FAIL when the whole 95 % interval of the steady time is within or above {report.limit_s:g} s."
        )
    boundaries = {e.energy.boundary for e in report.entries if e.energy and e.energy.boundary}
    if boundaries and not is_brief:
        what = boundaries.pop() if len(boundaries) == 1 else "see each run's boundary with --explain"
        price = report.price_per_kwh
        cost = f" cost: kWh x {price:g} {report.currency or ''}".rstrip() + "." if price else ""
        lines.append(f"energy: over the steady window; kWh for {report.tokens:,} tokens. Metered: {what}.{cost}")
    return lines
