"""Each number of a report with its lines, window, formula and what was left out, so that it can be recomputed by hand."""

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.summary import Summary, mean
from nlp_bench.measure.throughput import Throughput
from nlp_bench.report.table import Report


def explain(report: Report) -> str:
    """Return the explanation of all runs."""
    return "\n".join("\n".join(_run(entry, report.tokens)) for entry in report.entries) + "\n"


def _run(entry: RunEntry, tokens: int) -> list[str]:
    lines = [f"{entry.source}: {entry.outcome.value}, dialect {entry.dialect or 'unknown'}"]
    lines += [f"  note      {text}" for text in (*entry.reasons, *entry.remarks)]
    if entry.records:
        first, last = entry.records[0], entry.records[-1]
        lines.append(
            f"  records   {len(entry.records)}, lines {first.line_number} to {last.line_number} of the log, "
            f"iterations {first.iteration} to {last.iteration} of {entry.total_iterations or 'unknown'}"
        )
    if entry.throughput:
        lines += _numbers(entry, entry.throughput, tokens)
    elif entry.reference:
        lines += _rate("reference", entry.reference, tokens, "the published value")
    else:
        lines.append("  no number")
    return lines


def _numbers(entry: RunEntry, measured: Throughput, tokens: int) -> list[str]:
    window = measured.window
    lines = _rate(
        "reference",
        measured.reference,
        tokens,
        _reference_formula(entry) if measured.reference else "the batch size changes",
    )
    lines += _rate("steady", measured.steady, tokens, _steady_formula(measured))
    lines.append(
        f"  window    ends at intervals above {window.limit_seconds_per_token:.4e} s per token (median + max(5 %, "
        "3 x 1.4826 x median absolute deviation)); the interval with iteration 1 is warm-up"
    )
    lines += [f"  excluded  iterations {e.first_iteration} to {e.last_iteration}: {e.why}" for e in window.excluded]
    if measured.ci95:
        low, high = measured.ci95
        lines.append(
            f"  interval  {low:.2f} to {high:.2f} tokens/s, {tokens / high:.2f} to {tokens / low:.2f} s "
            "(95 %, Student t over batch means, the widest of batches of 1, 2, 4, ... records)"
        )
    if entry.tokens_per_second_per_gpu:
        lines.append(f"  per GPU   {entry.tokens_per_second_per_gpu:.2f} tokens/s = steady / {entry.num_gpus} GPUs")
    return [*lines, _seconds(measured.seconds_per_iteration)]


def _rate(name: str, rate: float | None, tokens: int, formula: str) -> list[str]:
    if rate is None:
        return [f"  {name:<9} none: {formula}"]
    return [
        f"  {name:<9} {rate:.2f} tokens/s = {formula}",
        f"  time      {tokens / rate:.2f} s = {tokens} tokens / {rate:.2f} tokens/s",
    ]


def _reference_formula(entry: RunEntry) -> str:
    times = [record.elapsed_s for record in entry.records if record.elapsed_s]
    batch = next(record.global_batch_size for record in entry.records if record.elapsed_s) or entry.global_batch_size
    average = f"{mean(times):.4f} s, the mean of all {len(times)} logged times"
    return f"{batch} samples x {entry.sequence_length} tokens / {average}"


def _steady_formula(measured: Throughput) -> str:
    window = measured.window
    lines = f"lines {window.spans[0].record.line_number} to {window.spans[-1].record.line_number}"
    where = f"iterations {window.first_iteration} to {window.last_iteration}, {len(window.spans)} record(s), {lines}"
    return f"{window.num_tokens} tokens / {window.seconds:.4f} s, {where}"


def _seconds(summary: Summary) -> str:
    cv = "unknown" if summary.cv is None else f"{summary.cv:.4f}"
    middle = f"mean {summary.mean:.4f} s, median {summary.median:.4f} s"
    return f"  iteration {middle}, p95 {summary.p95:.4f} s, p99 {summary.p99:.4f} s, cv {cv}, over the window's records"
