"""The table of all runs: every column that holds something, units in the headings, the interval as a bar."""

from collections.abc import Callable, Sequence
from typing import Any

from nlp_bench.report.page.section import is_number, shown
from nlp_bench.report.table import Report
from nlp_bench.show.escape import html_text

FIRST = (
    "source",
    "model",
    "outcome",
    "rules",
    "limit",
    "time_to_report_steady_s",
    "time_to_report_ci95_low_s",
    "time_to_report_ci95_high_s",
    "time_to_report_sustained_s",
    "time_to_report_reference_s",
)
"""Columns to begin with: what is decided on. The others follow in the order of the CSV."""
TITLES = {
    "source": ("run", ""),
    "num_gpus": ("GPUs", ""),
    "num_records": ("logged intervals", ""),
    "global_batch_size": ("global batch", "samples"),
    "sequence_length": ("sequence", "tokens"),
    "time_to_report_steady_s": ("time, steady", "s"),
    "time_to_report_ci95_low_s": ("95 % interval from", "s"),
    "time_to_report_ci95_high_s": ("to", "s"),
    "time_to_report_reference_s": ("time, reference", "s"),
    "tokens_per_second_steady": ("rate, steady", "tokens/s"),
    "tokens_per_second_ci95_low": ("95 % interval from", "tokens/s"),
    "tokens_per_second_ci95_high": ("to", "tokens/s"),
    "tokens_per_second_sustained": ("rate, sustained", "tokens/s"),
    "time_to_report_sustained_s": ("time, sustained", "s"),
    "tokens_per_second_reference": ("rate, reference", "tokens/s"),
    "tokens_per_second_per_gpu": ("rate per GPU", "tokens/s"),
    "seconds_per_iteration_mean": ("mean iteration", "s"),
    "joules_per_token": ("energy per token", "J"),
    "energy_kwh": ("energy", "kWh"),
    "mean_power_w_per_gpu": ("mean power per GPU", "W"),
    "window_first_iteration": ("steady window from", "iteration"),
    "window_last_iteration": ("to", "iteration"),
    "supplied": ("supplied by hand", ""),
    "model_tflops_per_gpu": ("model FLOP/s per GPU", "TFLOP/s"),
    "model_tflops_full_attention_per_gpu": ("the same, full attention", "TFLOP/s"),
    "hardware_tflops_per_gpu": ("hardware FLOP/s per GPU", "TFLOP/s"),
    "legacy_tflops_per_gpu": ("legacy count, x 4/3, per GPU", "TFLOP/s"),
    "mfu": ("MFU", "share of the peak"),
    "hfu": ("HFU", "share of the peak"),
    "mfu_full_attention": ("MFU, full attention", "share of the peak"),
}
"""Column to heading and unit, where the name itself would not do."""
UNITS = {"_s": "s", "_percent": "%", "_bytes": "bytes", "_w": "W", "_j": "J", "_kwh": "kWh", "_per_second": "1/s"}
"""End of a name to its unit, for the columns that TITLES does not have."""
MAX_REASON = 200
TEXTS = frozenset({"source", "model", "outcome", "limit", "rules", "supplied", "dialect", "reasons"})
"""Columns that are no numbers even where all cells are digits (a model may be called 175)."""
_BAR, _HALF = 160, 9


def title_of(column: str) -> tuple[str, str]:
    """Return the heading and the unit of a column; a new one is called by its name."""
    if column in TITLES:
        return TITLES[column]
    for ending, unit in UNITS.items():
        if column.endswith(ending):
            return column.removesuffix(ending).replace("_", " "), unit
    return column.replace("_", " "), ""


def main_table(report: Report, num_detailed: int) -> str:
    """Return the table; the first `num_detailed` runs link to their details."""
    rows = report.rows()
    columns = [name for name in _ordered(report.columns) if any(row[name] is not None for row in rows)]
    bars = _bars(rows, report.limit_s)
    headings = [_heading(name) for name in columns]
    lines = [[_cell(name, row[name], index, num_detailed) for name in columns] for index, row in enumerate(rows)]
    if bars:
        place = columns.index("time_to_report_steady_s") + 1
        headings.insert(place, '<th scope="col" class="bar" data-fixed>95 % interval<small>left is faster</small></th>')
        for line, bar in zip(lines, bars, strict=True):
            line.insert(place, f'<td class="bar">{bar}</td>')
    body = "\n".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return (
        '<div class="scroll" role="region" tabindex="0" aria-label="All runs"><table id="runs" class="runs">'
        f"<thead><tr>{''.join(headings)}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _ordered(columns: Sequence[str]) -> list[str]:
    return [*(name for name in FIRST if name in columns), *(name for name in columns if name not in FIRST)]


def _heading(column: str) -> str:
    title, unit = title_of(column)
    kind = "" if column in TEXTS else ' class="n"'
    small = f"<small>{html_text(unit)}</small>" if unit else ""
    return f'<th scope="col"{kind} title="{html_text(column)}"><span>{html_text(title)}</span>{small}</th>'


def _cell(column: str, value: Any, index: int, num_detailed: int) -> str:
    if column == "source":
        name = html_text(value)
        inner = f'<a href="#r{index}">{name}</a>' if index < num_detailed else name
        return f'<th scope="row" title="{name}"><bdi>{inner}</bdi></th>'
    if column in {"outcome", "limit", "rules"} and value is not None:
        return f"<td>{pill(str(value))}</td>"
    if column == "reasons" and value is not None and len(value) > MAX_REASON:
        value = value[: MAX_REASON - 3] + "..."
    kind = (
        ' class="n"'
        if column not in TEXTS and is_number(value)
        else f' class="{column}"'
        if column == "reasons"
        else ""
    )
    return f"<td{kind}>{shown(value)}</td>"


def pill(word: str) -> str:
    """Return an outcome or a verdict as a small label; the word says all, the colour repeats it."""
    kind = {"PASS": "good", "VALID": "good", "NOT PROVEN": "open", "MEASURED": "open"}.get(word, "bad")
    return f'<span class="pill {kind}">{html_text(word)}</span>'


def _bars(rows: Sequence[dict[str, Any]], limit_s: float | None) -> list[str]:
    """Return per row its interval and time as a bar on one scale; none where a single run has nothing to be compared with."""
    names = ("time_to_report_ci95_low_s", "time_to_report_steady_s", "time_to_report_ci95_high_s")
    known = [float(row[name]) for row in rows for name in names if row[name] is not None]
    num_times = sum(row[names[1]] is not None for row in rows)
    if not num_times or (num_times < 2 and limit_s is None):
        return []
    # A limit far away from every time would leave no room for them.
    near = limit_s is not None and min(known) / 2 <= limit_s <= 2 * max(known)
    ends = [*known, limit_s] if near and limit_s is not None else known
    low, width = min(ends), (max(ends) - min(ends)) or 1.0

    def place(value: float) -> str:
        return f"{6 + (_BAR - 12) * (value - low) / width:.1f}"

    line = f'<path class="limit" d="M{place(limit_s)} 0v18"/>' if near and limit_s is not None else ""
    return [_bar([row[name] for name in names], line, place) for row in rows]


def _bar(times: Sequence[float | None], line: str, place: Callable[[float], str]) -> str:
    low, time_s, high = times
    if time_s is None:
        return ""
    ends = f'<path d="M{place(low)} {_HALF}H{place(high)}m0-4v8M{place(low)} 5v8"/>' if low and high else ""
    return f'<svg viewBox="0 0 {_BAR} 18" aria-hidden="true">{line}{ends}<circle cx="{place(time_s)}" cy="{_HALF}" r="3.5"/></svg>'
