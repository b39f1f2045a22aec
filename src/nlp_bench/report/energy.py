"""Energy, its price and the machine in a report: cells, JSON, legend, and the lines of `--explain`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nlp_bench.errors import UsageError
from nlp_bench.measure.entry import RunResult

if TYPE_CHECKING:
    from nlp_bench.report.table import Report

MAX_WORD, MAX_ALIKE, SMALL = 12, 3, 10


def currency_of(word: str | None, price_per_kwh: float | None) -> str | None:
    """Return the word for the unit of the price; raises UsageError when there is no price, or it is no short word."""
    if word is None:
        return None
    if price_per_kwh is None:
        raise UsageError("--currency: it names the unit of --price-per-kwh, which is missing; give both")
    if not (1 <= len(word) <= MAX_WORD and word.isprintable() and not word.isspace()):
        raise UsageError(f"--currency: {word[:40]!r} is no word of 1 to {MAX_WORD} characters, such as EUR")
    return word


def readable_energy(row: dict[str, Any]) -> dict[str, Any]:
    """Return `row` with its energy and cost for people: two decimals, or four digits where that would be too few."""
    names = [name for name in ("joules_per_token", "energy_kwh", "cost") if row.get(name) is not None]
    return {**row, **{name: f"{row[name]:.2f}" if row[name] >= SMALL else f"{row[name]:.4g}" for name in names}}


def price_json(
    runs: Sequence[dict[str, Any]],
    entries: Sequence[RunResult],
    tokens: int,
    price_per_kwh: float | None,
    currency: str | None,
) -> dict[str, Any]:
    """Return the price as fields of the report, {} without one; with one each run's `energy` gets its `cost`."""
    if price_per_kwh is None:
        return {}
    for run, entry in zip(runs, entries, strict=True):
        if entry.energy:
            run["energy"]["cost"] = entry.energy.cost(tokens, price_per_kwh)
    return {"price_per_kwh": price_per_kwh, "currency": currency}


def price_notes(report: "Report") -> list[str]:
    """Return why there is no cost although a price was given."""
    if report.price_per_kwh is None:
        return []
    lines = [
        f"{entry.source}: no cost: no meter was read during the run, and the log states no energy"
        for entry in report.entries
        if entry.has_number and entry.energy is None  # where there is a record, a remark says it
    ]
    return (
        lines if len(lines) <= MAX_ALIKE else [lines[0], f"{len(lines) - 1} more runs have no cost for the same reason"]
    )


def energy_legend(report: "Report") -> list[str]:
    """Return what the columns of energy mean and what was metered, where any run has energy."""
    boundaries = {e.energy.boundary for e in report.entries if e.energy and e.energy.boundary}
    if not boundaries:
        return []
    what = boundaries.pop() if len(boundaries) == 1 else "see each run's boundary with --explain"
    price = (
        ""
        if report.price_per_kwh is None
        else f" cost: kWh x {report.price_per_kwh:g} {report.currency or ''}".rstrip() + "."
    )
    return [f"energy: over the steady window; kWh for {report.tokens:,} tokens. Metered: {what}.{price}"]


def energy_lines(entry: RunResult, tokens: int) -> Iterator[str]:
    """Return the lines of `--explain` on energy and machine."""
    energy = entry.energy
    if energy and energy.joules is not None and energy.joules_per_token is not None:
        kwh = energy.kwh(tokens) or 0.0
        counted = energy.joules / energy.joules_per_token
        yield f"  energy    {energy.joules_per_token:.6g} J/token = {energy.joules:.9g} J / {counted:.9g} tokens of the window"
        yield f"  energy    {kwh:.6g} kWh = {energy.joules_per_token:.6g} J/token x {tokens} tokens / 3600000"
        yield f"  metered   {energy.boundary}"
        if energy.mean_power_w_per_gpu is not None:
            yield f"  power     {energy.mean_power_w_per_gpu:.1f} W per GPU, the mean over the window"
        if energy.cpu_joules_per_token is not None:
            yield f"  energy    CPU packages beside it: {energy.cpu_joules_per_token:.6g} J/token by RAPL, not contained above"
        if energy.num_samples is not None:
            rate = f"{energy.num_samples} samples, {energy.samples_per_second:.2f} per second"
            yield f"  metered   {rate}, longest pause {energy.longest_gap_s:.2f} s (the node with the fewest)"
    elif energy:
        yield f"  energy    none: {energy.why_none}"
    if entry.machine:
        from nlp_bench.measure.machine import machine_lines  # noqa: PLC0415  # most reports explain nothing

        yield from (f"  machine   {line}" for line in machine_lines(entry.machine))
