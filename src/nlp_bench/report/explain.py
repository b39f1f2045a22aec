"""Each number of a report with its lines, window, formula and what was left out, so that it can be recomputed by hand."""

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.span import Span
from nlp_bench.measure.summary import mean
from nlp_bench.measure.throughput import Throughput
from nlp_bench.measure.window import Excluded
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
        lines.append(f"  reference {entry.reference:.2f} tokens/s as published")
        lines.append(f"  time      {tokens / entry.reference:.2f} s = {tokens} tokens / {entry.reference:.2f} tokens/s")
    else:
        lines.append("  no number")
    return lines


def _numbers(entry: RunEntry, measured: Throughput, tokens: int) -> list[str]:
    window = measured.window
    lines = _reference(entry, measured.reference, tokens)
    lines += [
        f"  steady    {measured.steady:.2f} tokens/s = {window.num_tokens} tokens / {window.seconds:.4f} s, iterations "
        f"{window.first_iteration} to {window.last_iteration}, {len(window.spans)} record(s), lines {_lines(window.spans)}",
        f"  time      {tokens / measured.steady:.2f} s = {tokens} tokens / {measured.steady:.2f} tokens/s",
        f"  window    ends at intervals above {window.limit_seconds_per_token:.4e} s per token (median + max(5 %, "
        "3 x 1.4826 x median absolute deviation)); the interval with iteration 1 is warm-up",
    ]
    lines += [f"  excluded  {_excluded(part)}" for part in window.excluded]
    if measured.ci95:
        low, high = measured.ci95
        lines.append(
            f"  interval  {low:.2f} to {high:.2f} tokens/s, {tokens / high:.2f} to {tokens / low:.2f} s "
            "(95 %, Student t over batch means, the widest of batches of 1, 2, 4, ... records)"
        )
    if entry.tokens_per_second_per_gpu:
        lines.append(f"  per GPU   {entry.tokens_per_second_per_gpu:.2f} tokens/s = steady / {entry.num_gpus} GPUs")
    seconds = measured.seconds_per_iteration
    lines.append(
        f"  iteration mean {seconds.mean:.4f} s, median {seconds.median:.4f} s, p95 {seconds.p95:.4f} s, p99 {seconds.p99:.4f} s, "
        f"cv {'unknown' if seconds.cv is None else format(seconds.cv, '.4f')}, over the records of the window"
    )
    return lines


def _reference(entry: RunEntry, reference: float | None, tokens: int) -> list[str]:
    if reference is None:
        return ["  reference none: the batch size changes"]
    times = [record.elapsed_s for record in entry.records if record.elapsed_s]
    batch = next(record.global_batch_size for record in entry.records if record.elapsed_s) or entry.global_batch_size
    return [
        f"  reference {reference:.2f} tokens/s = {batch} samples x {entry.sequence_length} tokens / {mean(times):.4f} s, "
        f"the mean of all {len(times)} logged times",
        f"  time      {tokens / reference:.2f} s = {tokens} tokens / {reference:.2f} tokens/s",
    ]


def _lines(spans: tuple[Span, ...]) -> str:
    return f"{spans[0].record.line_number} to {spans[-1].record.line_number}"


def _excluded(part: Excluded) -> str:
    return f"iterations {part.first_iteration} to {part.last_iteration}: {part.why}"
