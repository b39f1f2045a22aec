"""Cells for people: few columns, two decimals, an interval in one cell."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from nlp_bench.analysis.repeats import apart_line, repeat_lines
from nlp_bench.measure.entry import RunResult
from nlp_bench.report.energy import energy_legend, price_notes, readable_energy
from nlp_bench.report.table import Report
from nlp_bench.show.table import TEXT, Column, Style

HEADINGS = {
    "source": "source",
    "model": "model",
    "outcome": "outcome",
    "limit": "limit",
    "rules": "rules",
    "time_to_report_steady_s": "steady\ntime s",
    "tokens_per_second_steady": "\ntokens/s",
    "ci95": "95 %\ninterval",
    "window": "\nwindow",
    "time_to_report_reference_s": "reference\ntime s",
    "tokens_per_second_reference": "\ntokens/s",
    "time_to_report_sustained_s": "sustained\ntime s",
    "num_gpus": "GPUs",
    "global_batch_size": "batch",
    "dialect": "dialect",
    "joules_per_token": "energy\nJ/token",
    "energy_kwh": "\nkWh",
    "cost": "\ncost",
    "model_tflops_per_gpu": "TFLOP/s\nper GPU",
    "mfu": "MFU\n%",
}
"""Column to heading, what is decided on first; a line break splits it over the two lines of the terminal's heading."""
BRIEF = (
    "source", "outcome", "limit", "rules", "time_to_report_steady_s", "tokens_per_second_steady", "ci95"
)  # fmt: skip
"""Columns for a terminal where there are many runs, before the reason."""
TEXT_COLUMNS = frozenset({"source", "model", "dialect", "outcome", "rules", "limit"})
ALIKE = 0.005
"""Share of the steady time by which the sustained one has to differ to be a cell of the table."""
MAX_ALIKE = 3
"""As many runs are named one by one with the same note."""
MAX_LISTED = 12
"""With more runs, each has its reason in its row, and what is said of many is said once, with their number."""
MAX_WHYS = 10
"""As many causes for which there is no number are listed."""
_ALWAYS = ("source", "outcome", "time_to_report_reference_s", "tokens_per_second_reference")
_BY_NAME = {
    "global_batch_size": ("global_batch_size",),
    "num_gpus": ("num_gpus", "model_tflops_per_gpu", "mfu"),
    "gpu": ("mfu",),
    "precision": ("mfu",),
}
"""Supplied value to the cells that it changes beside those of the rate."""


def readable(report: Report, *, style: Style = TEXT) -> list[Column]:
    """Return the columns that are worth showing; a cell that rests on a value that the log does not show ends in a star."""
    rows = [_readable(row) for row in report.rows()]
    if all(row["model"] is not None for row in rows):  # runs of ours: the dialect says nothing new
        rows = [{**row, "dialect": None} for row in rows]
    stars = [starred(entry) for entry in report.entries]
    titles = HEADINGS if style is TEXT else {name: heading(name) for name in HEADINGS}
    names = [name for name in HEADINGS if name in _ALWAYS or any(row.get(name) is not None for row in rows)]
    if is_many(report):
        names = [name for name in names if name in _brief(report)] if style is TEXT else names
    columns = [
        Column(
            heading=titles[name],
            cells=_cells([row[name] for row in rows], [name in found for found in stars]),
            is_text=name in TEXT_COLUMNS,
        )
        for name in names
    ]
    if style is not TEXT and is_many(report):
        after = max(index for index, name in enumerate(names) if name in BRIEF) + 1
        whys = tuple("; ".join((*entry.reason_texts, *entry.remarks)) for entry in report.entries)
        columns.insert(after, Column(heading="reason", cells=whys, is_text=True))
    return columns


def _brief(report: Report) -> tuple[str, ...]:
    has_other = any(entry.has_number and entry.steady is None for entry in report.entries)
    return (*BRIEF, "time_to_report_reference_s") if has_other else BRIEF  # else the reason has more room


def is_many(report: Report) -> bool:
    """Say whether there are more runs than are told of one by one."""
    return len(report.entries) > MAX_LISTED


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    first, last = row["window_first_iteration"], row["window_last_iteration"]
    row = {**row, "window": None if first is None else f"{first}-{last}"}
    return readable_energy(_with_efficiency(_with_device(_with_interval(_as_sustained(row)))))


def starred(entry: RunResult) -> set[str]:
    """Return the columns that rest on what a person supplied."""
    names = {name for each in entry.supplied for name in _BY_NAME.get(each.name, ())}
    if any(each.changes_rate for each in entry.supplied):
        names |= {f"time_to_report_{kind}_s" for kind in ("steady", "reference", "sustained")}
        names |= {"tokens_per_second_steady", "model_tflops_per_gpu", "mfu", "joules_per_token", "energy_kwh", "cost"}
    return names


def _cells(values: list[Any], stars: list[bool]) -> tuple[str, ...]:
    cells = [_cell(value) for value in values]
    marks = ["*" if cell and star else "" for cell, star in zip(cells, stars, strict=True)]
    width = max(map(len, marks), default=0)  # the digits of the others stay below each other
    return tuple(cell and cell + mark.ljust(width) for cell, mark in zip(cells, marks, strict=True))


def _as_sustained(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out a sustained time that is the steady one for most purposes: the sentences below the table have it."""
    steady, sustained = row["time_to_report_steady_s"], row["time_to_report_sustained_s"]
    is_alike = steady and sustained and abs(sustained / steady - 1) <= ALIKE
    return {**row, "time_to_report_sustained_s": None} if is_alike else row


def _with_interval(row: dict[str, Any]) -> dict[str, Any]:
    low, high = row["tokens_per_second_ci95_low"], row["tokens_per_second_ci95_high"]
    digits = 0 if low and low >= 1000 else 1
    return {**row, "ci95": None if low is None else f"{low:.{digits}f}-{high:.{digits}f}"}


def _with_device(row: dict[str, Any]) -> dict[str, Any]:
    """Say "4 CPU" in the column of GPUs where the ranks ran on the CPU."""
    return {**row, "num_gpus": f"{row['num_gpus']} CPU"} if row["num_gpus"] and row["accelerator"] == "cpu" else row


def _with_efficiency(row: dict[str, Any]) -> dict[str, Any]:
    """Show FLOP/s with three digits at least, however few they are, and a share as a percentage."""
    tflops, share = row["model_tflops_per_gpu"], row["mfu"]
    shown = tflops and (f"{tflops:.1f}" if tflops >= 10 else f"{tflops:.3g}")
    return {**row, "model_tflops_per_gpu": shown, "mfu": share and f"{100 * share:.1f}"}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def heading(column: str) -> str:
    """Return the heading of a column in one line."""
    words = HEADINGS[column].replace("\n", " ").strip()
    kind = {
        "tokens_per_second_reference": "reference ",
        "tokens_per_second_steady": "steady ",
        "energy_kwh": "energy ",
    }
    return kind.get(column, "") + words


def notes(report: Report) -> list[str]:
    """Return one line per thing to know: why a run has no number, what qualifies it, where its log stops.

    What is true of many runs is said once, with the first of them; of many runs each has its own reason in its row.
    """
    lines = list(_tally(report) if is_many(report) else _told_of_each(report))
    lines += repeat_lines(report.repeats, report.tokens, report.limit_s)
    if not report.allow_measured and (apart := apart_line(report.entries)):
        lines.append(apart)
    if len(report.entries) > 1:
        from nlp_bench.analysis.sweep import winner_notes  # noqa: PLC0415  # one run has no rival

        lines += winner_notes(report.entries, allow_measured=report.allow_measured)
    lines += price_notes(report)
    return lines + [passed.sentence() for passed in report.passed_over]


def _told_of_each(report: Report) -> Iterator[str]:
    said = ("; ".join((*entry.reason_texts, *entry.remarks)) for entry in report.entries)
    for what, names in _grouped(report, said).items():
        alike = [f"{names[0]} and {len(names) - 1} more"] if len(names) > MAX_ALIKE else names
        yield from (f"{name}: {what}" for name in alike)


def _grouped(report: Report, said: Iterable[str]) -> dict[str, list[str]]:
    """Return what is said of any run, each with the runs that it is said of."""
    sources: dict[str, list[str]] = {}
    for what, entry in zip(said, report.entries, strict=True):
        if what:
            sources.setdefault(what, []).append(entry.source)
    return sources


def _tally(report: Report) -> Iterator[str]:
    """Yield the counts per outcome, then the causes for which runs have no number, the most frequent first."""
    entries = report.entries
    numbered = sum(entry.has_number for entry in entries)
    yield f"{len(entries):,} runs: {counts(report)}; {numbered:,} have a number, {len(entries) - numbered:,} have none."
    whys = Counter(
        entry.reason_texts[0] for entry in entries if entry.reason_texts and not entry.has_number
    ).most_common()
    told = [(why, count) for why, count in whys[:MAX_WHYS] if count > 1]
    yield from (f"no number ({count}): {why}" for why, count in told)
    if len(told) < len(whys):
        yield f"no number ({sum(count for _, count in whys[len(told) :])}): {len(whys) - len(told)} other causes, each in its row"


def counts(report: Report) -> str:
    """Return how many runs ended how, the most frequent first."""
    found = Counter(entry.outcome.value for entry in report.entries)
    return ", ".join(f"{count:,} {word}" for word, count in found.most_common())


def supplied_lines(report: Report) -> list[str]:
    """Return what the stars mean: the values that a person supplied and the logs do not show, with the runs that rest on them."""
    said = ("; ".join(each.words for each in entry.supplied) for entry in report.entries)
    return [
        f"* supplied by hand: {what}: {', '.join(names) if len(names) <= MAX_ALIKE else f'{len(names):,} runs'}"
        for what, names in _grouped(report, said).items()
    ]


def legend(report: Report, *, is_brief: bool = False) -> list[str]:
    """Return what the columns mean, in plain sentences; `is_brief` where the table has those of BRIEF alone."""
    lines = [
        f"time s: seconds for a training on {report.tokens:,} tokens = tokens / (tokens per second).",
        "reference: batch x sequence / mean of every logged time, warm-up included. steady: over the window of iterations only.",
    ]
    if not is_brief and any(_as_sustained(row)["time_to_report_sustained_s"] for row in report.rows()):
        found = [entry.throughput.sustained for entry in report.entries if entry.throughput]
        but = " but lines that are missing" if any(each and each.num_missing for each in found) else ""
        lines.append(
            f"sustained: over the wall clock from the first counted iteration to the last, nothing left out{but}."
        )
    if not is_brief and any(entry.efficiency and entry.efficiency.model_tflops_per_gpu for entry in report.entries):
        lines.append(
            "TFLOP/s per GPU: model FLOPs, causal attention counted as half; MFU: their share of the peak (--explain has all countings)."
        )
    if is_brief:
        lines.append("The whole reasons and all columns: --format csv, json or html, or --explain.")
    lines += supplied_lines(report)
    if report.limit_s is not None:
        lines.append(
            f"limit: PASS or FAIL when the whole 95 % interval of the steady time is within or above {report.limit_s:g} s."
        )
    return lines if is_brief else lines + energy_legend(report)
