"""Cells for people: few columns, two decimals, an interval in one cell."""

from typing import Any

from nlp_bench.report.energy import energy_legend, price_notes, readable_energy
from nlp_bench.report.repeated import apart_line, repeat_lines
from nlp_bench.report.table import Report

HEADINGS = {
    "source": "source",
    "model": "model",
    "dialect": "dialect",
    "outcome": "outcome",
    "num_gpus": "GPUs",
    "global_batch_size": "batch",
    "tokens_per_second_reference": "reference\ntokens/s",
    "time_to_report_reference_s": "\ntime s",
    "tokens_per_second_steady": "steady\ntokens/s",
    "ci95": "95 %\ninterval",
    "time_to_report_steady_s": "\ntime s",
    "window": "\nwindow",
    "time_to_report_sustained_s": "sustained\ntime s",
    "joules_per_token": "energy\nJ/token",
    "energy_kwh": "\nkWh",
    "cost": "\ncost",
    "model_tflops_per_gpu": "TFLOP/s\nper GPU",
    "mfu": "MFU\n%",
    "rules": "rules",
    "limit": "limit",
}
"""Column to heading; a line break splits it over the two lines of the terminal's heading."""
TEXT_COLUMNS = frozenset({"source", "model", "dialect", "outcome", "rules", "limit"})
ALIKE = 0.005
"""Share of the steady time by which the sustained one has to differ to be a cell of the table."""
MAX_ALIKE = 3
"""As many runs are named one by one with the same note."""
_ALWAYS = ("source", "outcome", "tokens_per_second_reference", "time_to_report_reference_s")


def readable(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return the columns that are worth showing and the cells as text; missing is an empty cell."""
    rows = [
        readable_energy(_with_efficiency(_with_device(_with_interval(_as_sustained(row))))) for row in report.rows()
    ]
    if all(row["model"] is not None for row in rows):  # runs of ours: the dialect says nothing new
        rows = [{**row, "dialect": None} for row in rows]
    columns = [name for name in HEADINGS if name in _ALWAYS or any(row.get(name) is not None for row in rows)]
    return columns, [[_cell(row[name]) for name in columns] for row in rows]


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
    kind = {"time_to_report_reference_s": "reference ", "time_to_report_steady_s": "steady "}
    return kind.get(column, "") + words


def notes(report: Report) -> list[str]:
    """Return one line per thing to know: why a run has no number, what qualifies it, where its log stops.

    What is true of many runs is said once, with the first of them.
    """
    sources: dict[str, list[str]] = {}
    for entry in report.entries:
        said = "; ".join((*entry.reasons, *entry.remarks))
        if said:
            sources.setdefault(said, []).append(entry.source)
    lines = []
    for said, names in sources.items():
        if len(names) > MAX_ALIKE:
            lines.append(f"{names[0]} and {len(names) - 1} more: {said}")
        else:
            lines += [f"{name}: {said}" for name in names]
    lines += repeat_lines(report.repeats, report.tokens, report.limit_s)
    if not report.allow_measured and (apart := apart_line(report.entries)):
        lines.append(apart)
    if len(report.entries) > 1:
        from nlp_bench.sweep.sweep import winner_notes  # noqa: PLC0415  # one run has no rival

        lines += winner_notes(report.entries)
    lines += price_notes(report)
    return lines + [passed.sentence() for passed in report.passed_over]


def legend(report: Report) -> list[str]:
    """Return what the columns mean, in plain sentences."""
    lines = [
        f"time s: seconds for a training on {report.tokens:,} tokens = tokens / (tokens per second).",
        "reference: batch x sequence / mean of every logged time, warm-up included. steady: over the window of iterations only.",
    ]
    if any(_as_sustained(row)["time_to_report_sustained_s"] for row in report.rows()):
        lines.append("sustained: over the wall clock from the first counted iteration to the last, nothing left out.")
    if any(entry.efficiency and entry.efficiency.model_tflops_per_gpu for entry in report.entries):
        lines.append(
            "TFLOP/s per GPU: model FLOPs, causal attention counted as half; MFU: their share of the peak (--explain has all countings)."
        )
    if report.limit_s is not None:
        lines.append(
            f"limit: PASS or FAIL when the whole 95 % interval of the steady time is within or above {report.limit_s:g} s."
        )
    return lines + energy_legend(report)
