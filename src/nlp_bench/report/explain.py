"""Each number of a report with its lines, window, formula and what was left out, so that it can be recomputed by hand."""

from collections.abc import Iterator

from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.estimate import Estimate
from nlp_bench.measure.provenance import Arithmetic, LeftOut, Place, Provenance, arithmetic_of
from nlp_bench.measure.throughput import Summary, Throughput
from nlp_bench.report.energy import energy_lines
from nlp_bench.report.flops import efficiency_lines
from nlp_bench.report.table import Report
from nlp_bench.report.words import MAX_RUNS, run_lines
from nlp_bench.rules.apply import rules_lines


def explain(report: Report) -> str:
    """Return the explanation of all runs, with an empty line between two."""
    spoken = len(report.entries) <= MAX_RUNS  # by the table already
    return "\n\n".join("\n".join(_run(entry, report, spoken=spoken)) for entry in report.entries) + "\n"


def _run(entry: RunResult, report: Report, *, spoken: bool) -> Iterator[str]:
    tokens = report.tokens
    found = entry.provenance or Provenance()
    yield f"{entry.source}: {entry.outcome.value}, dialect {entry.dialect or 'unknown'}"
    for text in (*entry.reason_texts, *entry.remarks):
        yield _line("note", text)
    yield from _records(entry, found)
    if entry.throughput:
        sums = found.arithmetic or arithmetic_of(entry.throughput)
        yield from _numbers(entry, entry.throughput, sums, tokens)
    elif entry.reference:
        yield from _rate("reference", entry.reference, tokens, "the published value")
    else:
        yield "  no number"
    yield from efficiency_lines(entry)
    yield from rules_lines(entry)
    yield from energy_lines(entry, tokens)
    for name, origin in (found.quantities or {}).items():
        value = "" if origin.value is None else f" = {_digits(origin.value)}"
        yield _line("from", f"{name}{value}: {origin.source or 'not known'}")
    for left in found.left_out:
        yield _line("left out", _left_out(left))
    if not spoken:
        yield from (f"  {line}" for line in run_lines(entry, report))


def _line(name: str, text: str) -> str:
    return f"  {name:<9} {text}"


def _seen(autocorrelation: float | None) -> str:
    return "too short to see" if autocorrelation is None else f"{autocorrelation:.2f}"


def _digits(value: float) -> str:
    """Return `value` with the digits that a pocket calculator needs to come to the printed rate."""
    return f"{value:.0f}" if value == round(value) else f"{value:.9g}"


def _records(entry: RunResult, found: Provenance) -> Iterator[str]:
    first, last, window = found.first_record, found.last_record, found.window_first_record
    if not first or not last:
        return
    where = f"{_lines(first.line, last.line)} of the log (bytes {first.offset} to {last.offset})"
    iterations = f"iterations {first.iteration} to {last.iteration} of {entry.total_iterations or 'unknown'}"
    yield _line("records", f"{entry.num_records}, {where}, {iterations}")
    yield from _quote(first)
    if window and window.line != first.line:
        yield from _quote(window)


def _quote(place: Place) -> Iterator[str]:
    if place.text is not None:
        yield _line(f"line {place.line}", place.text)


def _numbers(entry: RunResult, measured: Throughput, sums: Arithmetic, tokens: int) -> Iterator[str]:
    yield from _rate("reference", measured.reference, tokens, _reference_formula(entry, measured, sums))
    yield from _rate("steady", measured.steady, tokens, _steady_formula(entry, measured, sums))
    yield _line(
        "window",
        f"the level between change points that holds most intervals, cut at both ends at {measured.window.limit_seconds_per_token:.4e} s "
        "per token (median + max(3 %, 3 x 1.4826 x median absolute deviation)); the interval with the first iteration is warm-up",
    )
    if measured.ci95 and measured.estimate:
        low, high = measured.ci95
        yield _line(
            "interval",
            f"{low:.2f} to {high:.2f} tokens/s, {tokens / high:.2f} to {tokens / low:.2f} s "
            f"(95 %: {_parts(measured.estimate)}; autocorrelation {_seen(measured.steadiness.autocorrelation)})",
        )
    if measured.sustained:
        found = measured.sustained
        where = f"iterations {found.first_iteration} to {found.last_iteration} in {found.seconds:.4f} s by the {found.clock}"
        yield _line(
            "sustained", f"{found.tokens_per_second:.2f} tokens/s, {tokens / found.tokens_per_second:.2f} s: {where}"
        )
    if entry.tokens_per_second_per_gpu:
        yield _line("per GPU", f"{entry.tokens_per_second_per_gpu:.2f} tokens/s = steady / {entry.num_gpus} GPUs")
    if measured.seconds_per_iteration:
        yield _line("iteration", _seconds(measured.seconds_per_iteration))


def _parts(estimate: Estimate) -> str:
    """Say what an interval is made of."""
    found = estimate.uncertainty
    if found is None:
        share = 100 * estimate.standard_error / estimate.seconds_per_token
        return f"Student t, {estimate.degrees:.1f} degrees of freedom, standard error {share:.3f} %"
    parts = [f"noise {100 * found.noise:.3f} % at {found.degrees:.1f} degrees of freedom"]
    if found.num_stalls:
        cost = 100 * found.stalls / found.num_iterations
        parts.append(f"{found.num_stalls} stall(s) that cost {found.stalls:.2f} iterations, {cost:.2f} % of the time")
    if found.num_switches:
        parts.append(f"two states with {found.num_switches} change(s) between them, {100 * found.switching:.2f} %")
    parts.append(f"a stall of {found.unseen:.1f} iterations that was not seen")
    return ", ".join(parts)


def _rate(name: str, rate: float | None, tokens: int, formula: str) -> Iterator[str]:
    if rate is None:
        yield _line(name, f"none: {formula}")
        return
    yield _line(name, f"{rate:.2f} tokens/s = {formula}")
    yield _line("time", f"{tokens / rate:.2f} s = {tokens} tokens / {rate:.2f} tokens/s")


def _reference_formula(entry: RunResult, measured: Throughput, sums: Arithmetic) -> str:
    if sums.tokens_per_iteration is None or sums.mean_s is None:
        is_timed = measured.sizes.has_times
        return "the tokens per iteration are not one known number" if is_timed else "the log has rates and no times"
    batch, sequence = entry.global_batch_size, entry.sequence_length
    is_product = batch and sequence and batch * sequence == sums.tokens_per_iteration
    tokens = f"{batch} samples x {sequence} tokens" if is_product else f"{_digits(sums.tokens_per_iteration)} tokens"
    origin = (entry.provenance.quantities or {}).get("seconds_per_iteration") if entry.provenance else None
    is_logged = origin and (origin.source or "").startswith("log line")
    return (
        f"{tokens} / {_digits(sums.mean_s)} s, the mean of all {sums.num_times}{' logged' if is_logged else ''} times"
    )


def _steady_formula(entry: RunResult, measured: Throughput, sums: Arithmetic) -> str:
    window, found = measured.window, entry.provenance or Provenance()
    first, last = found.window_first_record, found.window_last_record
    lines = f", {_lines(first.line, last.line)}" if first and last else ""
    where = f"iterations {window.first_iteration} to {window.last_iteration}, {window.num_records} record(s){lines}"
    if measured.sizes.has_times:
        return f"{_digits(sums.window_tokens)} tokens / {_digits(sums.window_seconds)} s, {where}"
    count = sums.window_iterations
    return f"{_digits(sums.window_tokens)} / {count}, the mean of the logged rates over {count} iteration(s), {where}"


def _seconds(summary: Summary) -> str:
    cv = "unknown" if summary.cv is None else f"{summary.cv:.4f}"
    middle = f"mean {summary.mean:.4f} s, median {summary.median:.4f} s"
    return f"{middle}, p95 {summary.p95:.4f} s, p99 {summary.p99:.4f} s, cv {cv}, over the window's records"


def _left_out(left: LeftOut) -> str:
    where = f" ({_lines(*left.lines)})" if left.lines else ""
    return f"{left.count} {left.what}{where}: {left.why}"


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"
