"""The head of the page: what was measured and what it means, in words that need no table."""

from collections import Counter
from collections.abc import Iterator

from nlp_bench.analysis.repeats import Pool, time_interval_s, word_over_runs
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.limit import FAIL, NOT_PROVEN, PASS
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import SHAPE
from nlp_bench.report.page.columns import counts, pill
from nlp_bench.report.table import Report
from nlp_bench.show.escape import html_text

NO_VALID_RUN = "no valid run"


def head(report: Report) -> str:
    """Return the title, the verdict and, for a single run, its main figures."""
    entries = report.entries
    numbered = [entry for entry in entries if entry.has_number]
    title = subject(report)
    if not numbered:
        said = f"<p><strong>{NO_VALID_RUN}</strong>{_why(entries[0]) if len(entries) == 1 else ''}</p>"
        several = counts(report) if len(entries) > 1 else ""
        return f'<header><h1>{html_text(title)}</h1><div class="verdict bad">{said}</div>{several}</header>'
    if len(entries) > 1:
        return f"<header><h1>{html_text(title)}</h1>{_many(report, numbered)}{counts(report)}</header>"
    (entry,) = numbered
    word = entry.verdict.word if entry.verdict else ""
    kind = {PASS: "good", FAIL: "bad", NOT_PROVEN: "open"}.get(word, "plain")
    label = pill(word) if word else ""
    words = " ".join((*sentences(entry, report), *_broken([entry])))
    return (
        f'<header><h1>{html_text(title)}</h1><div class="verdict {kind}"><p>{label} {html_text(words)}</p></div>'
        f'<dl class="tiles">{"".join(_tiles(entry, report))}</dl></header>'
    )


def subject(report: Report) -> str:
    """Return what the report is about, in a few words."""
    if len(report.entries) != 1:
        return f"Training speed of {len(report.entries):,} runs" if report.entries else "Training speed: no run"
    (entry,) = report.entries
    what = f"model {entry.model}" if entry.model else entry.source
    kind = "CPU rank" if entry.accelerator == "cpu" else "GPU"
    where = f" on {entry.num_gpus:,} {kind}{'s' if entry.num_gpus > 1 else ''}" if entry.num_gpus else ""
    return f"Training speed: {what}{where}"


def sentences(entry: RunResult, report: Report) -> Iterator[str]:
    """Return the result of one run with a number in sentences."""
    time_s = time_to_report_s(report.tokens, entry.rate)
    interval = entry.time_ci95_s(report.tokens)
    rate = "the measured steady rate" if entry.steady else "the published rate"
    within = f" (95 % interval {seconds(interval[0])} to {seconds(interval[1])})" if interval else ""
    yield f"A training on {report.tokens:,} tokens takes {seconds(time_s)} at {rate}{within}."
    judgement = entry.verdict
    if judgement is None:
        return
    margin = judgement.margin or 0.0
    where = f"{100 * abs(margin):.1f} % {'below' if margin >= 0 else 'above'} the limit of {judgement.limit_s:g} s"
    if judgement.word == PASS:
        yield f"That is {where}, and the whole interval lies within it."
    elif judgement.word == FAIL:
        yield f"That is {where}, and the whole interval lies above it."
    else:
        yield f"That is {where}, but that is not proven: {'; '.join(judgement.reasons)}."


def seconds(value: float | None) -> str:
    """Return a time for people."""
    return "" if value is None else f"{value:,.1f} s" if value >= 10 else f"{value:.3g} s"


def _why(entry: RunResult) -> str:
    reasons = "; ".join(entry.reason_texts)
    return f" {pill(entry.outcome.value)} {html_text(reasons)}"


def _many(report: Report, numbered: list[RunResult]) -> str:
    num_none = len(report.entries) - len(numbered)
    times = {id(e): time_to_report_s(report.tokens, e.rate) or 0.0 for e in numbered}
    best = min(numbered, key=lambda e: times[id(e)])
    said = [f"{len(numbered):,} of {len(report.entries):,} runs have a number."]
    if num_none:
        said.append(f"{num_none:,} {'has' if num_none == 1 else 'have'} none; the table says why.")
    whole = report.repeats[0] if len(report.repeats) == 1 else None
    if whole and len(whole.runs) == len(numbered):  # the best of several repeats is no result
        said.append(f"They are repeats of one configuration: {_over_runs(whole, report)}")
    elif len({(entry.model, *entry.workload.values(SHAPE).items()) for entry in numbered}) == 1:
        shortest = seconds(times[id(best)])
        said.append(f"The shortest time for a training on {report.tokens:,} tokens is {shortest} ({best.source}).")
    else:
        said.append("They trained different models: their times are no ranking.")
    said += _broken(numbered)
    limits = ""
    kind = "plain"
    if report.limit_s is not None:
        found = Counter(entry.verdict.word for entry in report.entries if entry.verdict)
        words = [f"{pill(word)} {found[word]:,}" for word in (PASS, FAIL, NOT_PROVEN) if found[word]]
        limits = f"<p>Limit of {report.limit_s:g} s: {' '.join(words)}</p>"
        kind = "good" if set(found) == {PASS} else "bad" if set(found) == {FAIL} else "open"
    return f'<div class="verdict {kind}">{limits}<p>{html_text(" ".join(said))}</p></div>'


def _over_runs(pool: Pool, report: Report) -> str:
    time_s = seconds(time_to_report_s(report.tokens, pool.tokens_per_second))
    interval_s = time_interval_s(pool, report.tokens)
    within = f" (95 % over runs {seconds(interval_s[0])} to {seconds(interval_s[1])})" if interval_s else ""
    word = (
        f"; limit of {report.limit_s:g} s: {word_over_runs(pool, report.tokens, report.limit_s)}"
        if report.limit_s
        else ""
    )
    return f"a training on {report.tokens:,} tokens takes {time_s} on average{within}{word}."


def _broken(numbered: list[RunResult]) -> list[str]:
    """Say that numbers come from runs that break rules: the number alone would not tell."""
    number = sum(entry.rules is not None and entry.rules.result == "INVALID" for entry in numbered)
    if not number:
        return []
    who = "It breaks" if len(numbered) == 1 else f"{number:,} of them {'breaks' if number == 1 else 'break'}"
    return [f"{who} rules of the benchmark: see which in the part of the run."]


def _tiles(entry: RunResult, report: Report) -> Iterator[str]:
    interval = entry.time_ci95_s(report.tokens)
    rate = entry.rate
    yield _tile(
        "Time to report",
        seconds(time_to_report_s(report.tokens, rate)),
        f"95 %: {interval[0]:,.1f} to {interval[1]:,.1f} s" if interval else f"{report.tokens:,} tokens",
    )
    yield _tile("Throughput", f"{rate:,.0f}", "tokens per second, steady" if entry.steady else "tokens per second")
    if entry.tokens_per_second_per_gpu and entry.num_gpus:
        kind = "CPU rank" if entry.accelerator == "cpu" else "GPU"
        yield _tile(
            f"Per {kind}", f"{entry.tokens_per_second_per_gpu:,.1f}", f"tokens per second, {entry.num_gpus:,} of them"
        )
    share = entry.efficiency.mfu if entry.efficiency else None
    if share is not None:
        yield _tile("MFU", f"{100 * share:.1f} %", "model FLOP/s as a share of the peak")
    if entry.throughput:
        window = entry.throughput.window
        where = f"iterations {window.first_iteration:,} to {window.last_iteration:,}"
        yield _tile(
            "Steady window", f"{window.num_records:,} of {entry.throughput.num_records:,}", f"logged intervals; {where}"
        )


def _tile(name: str, value: str, note: str) -> str:
    return f"<div><dt>{html_text(name)}</dt><dd>{html_text(value)}<small>{html_text(note)}</small></dd></div>"
