"""The table of all runs: every column that holds something, units in the headings, the interval as a bar."""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from nlp_bench.report.readable import starred
from nlp_bench.report.table import Report
from nlp_bench.show import grid
from nlp_bench.show.escape import html_text, shortened
from nlp_bench.show.page import is_number, shown
from nlp_bench.show.scale import Scale

NUMBER = ("time_to_report_steady_s", "bar", "tokens_per_second_steady")
"""Columns of the number."""
REFERENCE = ("time_to_report_reference_s", "tokens_per_second_reference")
"""Those in their place where no run has a steady one."""
FILTERS = ("outcome", "dialect", "model")
"""Columns by which the page filters and groups: each row carries their values."""
TITLES = {
    "source": ("run", ""),
    "num_gpus": ("GPUs", ""),
    "num_records": ("logged intervals", ""),
    "global_batch_size": ("global batch", "samples"),
    "sequence_length": ("sequence", "tokens"),
    "time_to_report_steady_s": ("time, steady", "s"),
    "bar": ("95 % interval", "s; left is faster"),
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
MAX_REASON = 100
FAR_APART = 20
"""From such a ratio of the longest to the shortest time on, the bars have a logarithmic scale: one outlier would flatten the rest."""
MAX_LOW = 20
"""Of more runs the table scrolls by itself, so that its headings stay."""
TEXTS = frozenset({"bar", "source", "model", "outcome", "limit", "rules", "supplied", "dialect", "reasons"})
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
    """Return the table; the first `num_detailed` runs link to their details.

    What is decided on comes first, and is all that paper shows; the other columns follow in the order of the CSV.
    """
    rows = report.rows()
    rows = [{**row, "bar": bar} for row, bar in zip(rows, _bars(rows, report.limit_s), strict=True)]
    number = NUMBER if any(entry.steady for entry in report.entries) else REFERENCE
    first = ("source", "model", "outcome", "rules", "limit", *number, "reasons", "num_gpus", "dialect")
    columns = {
        name: "" if name in first else "more"
        for name in (*first, *report.columns)
        if any(row.get(name) is not None for row in rows)
    }
    folder = _folder([entry.source for entry in report.entries])
    lines = []
    for index, (row, entry) in enumerate(zip(rows, report.entries, strict=True)):
        stars = starred(entry)
        cells = {
            name: _cell(name, row[name], _class(name, more, "star" if name in stars else ""))
            for name, more in columns.items()
        }
        if (
            len(rows) > 1 and not entry.has_number and "reasons" in cells
        ):  # the reason stands in the place of the number
            taken = [name for name in number if cells.pop(name, None)]
            cells["reasons"] = cells["reasons"].replace("<td", f'<td colspan="{len(taken) + 1}"', 1)
        cells["source"] = _source(row["source"], folder, index if index < num_detailed else None)
        data = "".join(f' data-{name}="{html_text(row[name] or "")}"' for name in FILTERS)
        lines.append(f'<tr data-run="r{index}"{data}>{"".join(cells.values())}</tr>')
    headings = "".join(_heading(name, more) for name, more in columns.items())
    return (
        f'{_controls(report)}<div class="scroll{" tall" if len(rows) > MAX_LOW else ""}" role="region" tabindex="0" '
        f'aria-label="All runs"><table id="runs" class="runs"><thead><tr>{headings}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _folder(names: Sequence[str]) -> str:
    """Return the folder that all names share, with its slash; empty where they share none."""
    parts = zip(*(name.split("/")[:-1] for name in names), strict=False)
    return "".join(f"{same[0]}/" for same in takewhile(lambda each: len(set(each)) == 1, parts))


def counts(report: Report) -> str:
    """Return how many runs ended how, as a list of which the script makes buttons."""
    found = Counter(entry.outcome.value for entry in report.entries).most_common()
    items = "".join(f'<li data-outcome="{word}">{pill(word)} {count:,}</li>' for word, count in found)
    return f'<ul id="counts">{items}</ul>'


def _controls(report: Report) -> str:
    """Return the fields that filter and group; without the script they stay hidden."""
    if len(report.entries) < 2:
        return ""
    values = {name: {getattr(entry, name) or "" for entry in report.entries} for name in FILTERS}
    several = [name for name in FILTERS if len(values[name]) > 1]
    selects = [_select(name, name, "all", sorted(values[name] - {""})) for name in several if name != "outcome"]
    selects += [_select("group", "group by", "nothing", several)] if several else []
    return (
        '<div id="controls" role="search" hidden><label>find <input type="search" id="find" placeholder="any text of a row">'
        f'</label>{"".join(selects)}<button type="button" id="reset">all runs</button><span id="shown" role="status"></span></div>'
    )


def _select(name: str, label: str, none: str, values: Sequence[str]) -> str:
    options = "".join(f"<option>{html_text(value)}</option>" for value in values)
    return f'<label>{label} <select id="{name}"><option value="">{none}</option>{options}</select></label>'


def _heading(column: str, more: str) -> str:
    title, unit = title_of(column)
    small = f"<small>{html_text(unit)}</small>" if unit else ""
    kind = _class(column, more, "" if column in TEXTS else "n")
    fixed = " data-fixed" if column == "bar" else ""
    return f'<th scope="col"{kind}{fixed} title="{html_text(column)}"><span>{html_text(title)}</span>{small}</th>'


def _class(column: str, *kinds: str) -> str:
    words = " ".join(filter(None, (*kinds, column if column in {"bar", "reasons"} else "")))
    return f' class="{words}"' if words else ""


def _source(name: str, folder: str, run: int | None) -> str:
    """Return the heading of a row: its name without the folder that all runs share."""
    short = html_text(name.removeprefix(folder))
    inner = short if run is None else f'<a href="#r{run}">{short}</a>'
    return f'<th scope="row" title="{html_text(name)}"><bdi>{inner}</bdi></th>'


def _cell(column: str, value: Any, kind: str) -> str:
    if column == "bar":
        return f"<td{kind}>{value or ''}</td>"
    if column in {"outcome", "limit", "rules"} and value is not None:
        return f"<td{kind}>{pill(str(value))}</td>"
    if column == "reasons" and value is not None:
        value = shortened(value, MAX_REASON)
    if column not in TEXTS and is_number(value):
        kind = kind.replace('class="', 'class="n ') or ' class="n"'
    return f"<td{kind}>{shown(value)}</td>"


def pill(word: str) -> str:
    """Return an outcome or a verdict as a small label; the word says all, the colour repeats it."""
    kind = {"PASS": "good", "VALID": "good", "NOT PROVEN": "open", "MEASURED": "open"}.get(word, "bad")
    return f'<span class="pill {kind}">{html_text(word)}</span>'


def _bars(rows: Sequence[dict[str, Any]], limit_s: float | None) -> list[str | None]:
    """Return per row its interval in words and, beside others, as a bar on one scale; None where it has no time."""
    names = ("time_to_report_ci95_low_s", "time_to_report_steady_s", "time_to_report_ci95_high_s")
    known = [float(row[name]) for row in rows for name in names if row[name] is not None]
    num_times = sum(row[names[1]] is not None for row in rows)
    if not num_times:
        return [None] * len(rows)
    # A limit far away from every time would leave no room for them.
    near = limit_s if limit_s is not None and min(known) / 2 <= limit_s <= 2 * max(known) else None
    low, high = min([*known, near or min(known)]), max([*known, near or 0.0])
    axis = Scale(low=low, high=high if high > low else low + 1, is_log=high > FAR_APART * low)
    is_drawn = num_times > 1 or limit_s is not None
    return [_bar([row[name] for name in names], axis if is_drawn else None, near) for row in rows]


def _bar(times: Sequence[float | None], axis: Scale | None, limit_s: float | None) -> str | None:
    low, time_s, high = times
    if time_s is None:
        return None
    words = f"<small>{grid.interval((low, high), digits=1).replace('-', ' to ')}</small>" if low and high else ""
    if axis is None:
        return words or None

    def place(value: float) -> str:
        return f"{6 + (_BAR - 12) * axis.share(value):.1f}"

    line = f'<path class="limit" d="M{place(limit_s)} 0v18"/>' if limit_s else ""
    ends = f'<path d="M{place(low)} {_HALF}H{place(high)}m0-4v8M{place(low)} 5v8"/>' if low and high else ""
    dot = f'<circle cx="{place(time_s)}" cy="{_HALF}" r="3.5"/>'
    return f'<svg viewBox="0 0 {_BAR} 18" aria-hidden="true">{line}{ends}{dot}</svg>{words}'
