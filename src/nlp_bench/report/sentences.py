"""The number in words that need no statistics: for the person who signs."""

from collections.abc import Iterator

from nlp_bench.measure.limit import VERDICTS, Verdict
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import Sustained, Throughput, times_to_report_s
from nlp_bench.measure.window import span_of
from nlp_bench.report.report import Report
from nlp_bench.show.table import Column, Table, as_text, number

MAX_RUNS = 3  # with more runs in one report the words are left to --explain
ONE_RUN = "This is one run: how much runs differ from each other is not in it; repeat it (repeats: 5) to know."
OTHER_WINDOWS = "The number under other windows"
UNIT_MARGIN = 30  # excess over the limit, in limits, from which it may be meant in minutes or hours
LARGE_MARGIN = 10  # the same from which the time is given as a multiple of the limit


def report_lines(report: Report) -> list[str]:
    """Return the lines about all runs that have a number, with an empty line between two."""
    lines: list[str] = []
    for entry in report.entries:
        if entry.throughput:
            lines += ["", *run_lines(entry, report)]
    return lines[1:]


def run_lines(entry: RunResult, report: Report) -> Iterator[str]:
    """Yield the lines about one run: the sentences, then the number under other windows."""
    tokens, measured, judgement = report.tokens, entry.throughput, entry.verdict
    if measured is None:
        return
    yield f"In words: {entry.source}"
    yield from (f"  {sentence}" for sentence in sentences(entry, measured, tokens, judgement))
    if not any(run.source == entry.source for found in report.repeats for run in found.runs):
        yield f"  {ONE_RUN}"
    if windows := other_windows(measured, tokens, judgement):
        yield f"  {OTHER_WINDOWS}:"
        yield from (f"    {line}" for line in as_text(windows, least=(12, 9, 5), has_rule=False))


_WORTH_SAYING, _WORTH_ROUNDING = 0.005, 0.001


def sentences(entry: RunResult, measured: Throughput, tokens: int, judgement: Verdict | None) -> Iterator[str]:
    """Return the sentences about one run, the verdict first where there is one."""
    steady_s = tokens / measured.steady
    window = measured.window
    if judgement:
        yield f"{judgement.word}: {verdict_words(judgement)}"
    yield (
        f"At the steady speed of {_where(window.first_iteration, window.last_iteration)}, {tokens:,} tokens take {steady_s:.2f} s."
        + _left_out(measured)
    )
    interval = entry.time_ci95_s(tokens)
    if interval:
        low, high = interval
        yield (
            f"The 95 % interval is {low:.2f} to {high:.2f} s: of intervals made in this way 95 in 100 hold the true time. "
            f"Its slow end allows for stalls too rare to show in {_counted(measured)}."
            + _rounded(measured)
            + _more(measured)
        )
    elif measured.why_no_interval:
        yield f"How far this can be off is not known: {measured.why_no_interval}."
    if measured.sustained:
        yield _sustained(measured.sustained, measured.steady, tokens, judgement)
    yield from (f"Note: {said}." for said in measured.steadiness.words())
    if judgement:
        yield _dependence(judgement)


def verdict_words(judgement: Verdict) -> str:
    """Return what the verdict says, without its word."""
    margin = judgement.margin or 0.0
    where = f"{100 * abs(margin):.1f} % {'below' if margin >= 0 else 'above'}"
    where = f"{where if margin > -LARGE_MARGIN else f'{1 - margin:.3g} times'} the limit of {judgement.limit_s:g} s"
    if margin <= -UNIT_MARGIN:
        where += " (is that limit in seconds?)"
    if does := VERDICTS[judgement.word].proves:
        return f"the run is proven to {does} the limit; its time is {where}."
    return f"the run neither keeps nor misses the limit for certain; its time is {where}, but {'; '.join(judgement.reasons)}."


def _sustained(found: Sustained, steady: float, tokens: int, judgement: Verdict | None) -> str:
    """Say also what the sustained time has that the steady time has not, where that is worth a sentence."""
    interval_s, share = times_to_report_s(tokens, found.ci95), steady / found.tokens_per_second - 1
    between = f" ({interval_s[0]:.2f} to {interval_s[1]:.2f} s)" if interval_s else ""
    where = _where(found.first_iteration, found.last_iteration)
    word = f", against the limit {judgement.sustained}" if judgement and judgement.sustained else ""
    number = found.num_missing
    lines = f"without the {number} {'line that is' if number == 1 else 'lines that are'} missing" if number else ""
    what = f"Sustained, {lines or 'with nothing left out'} from {where} ({found.clock})"
    said = f"{what}: {tokens / found.tokens_per_second:.2f} s{between}{word}."
    if share < _WORTH_SAYING:
        return said
    return f"{said} That is {100 * share:.1f} % more than at the steady speed: evaluations, checkpoints and whatever else lies between the lines count."


def _where(first: int, last: int) -> str:
    return f"iteration {first}" if first == last else f"iterations {first} to {last}"


def _counted(measured: Throughput) -> str:
    found = measured.estimate.uncertainty if measured.estimate else None
    iterations = f" ({found.num_iterations:.0f} iterations)" if found else ""
    return f"{measured.window.num_records} logged intervals{iterations}"


def _rounded(measured: Throughput) -> str:
    found = measured.estimate.uncertainty if measured.estimate else None
    if not found or found.rounding < _WORTH_ROUNDING:
        return ""
    return f" Its values scatter by less than the last digit that the log prints, and may all be rounded the same way: +-{100 * found.rounding:.2g} % of it."


def _left_out(measured: Throughput) -> str:
    parts = [f"{span_of(stretch)} ({stretch.why})" for stretch in measured.window.excluded[:4]]
    more = len(measured.window.excluded) - len(parts)
    if not parts:
        return ""
    is_one = len(measured.window.excluded) == 1 and "-" not in parts[0].partition(" ")[0]
    others = f" and {more} more {'stretch' if more == 1 else 'stretches'}" if more > 0 else ""
    return f" Not counted: {'iteration' if is_one else 'iterations'} {', '.join(parts)}{others}."


def _more(measured: Throughput) -> str:
    more = measured.num_more
    if more is None:
        return ""
    if more == 0:
        return " That is within 1 %: the run is long enough."
    step = measured.window.iterations_per_record
    every = f" of {step} iterations" if step > 1 else ""
    intervals = "one more interval" if more == 1 else f"{more} more intervals"
    return f" For 1 %, run about {intervals}{every}, if they scatter as these do."


def _dependence(judgement: Verdict) -> str:
    if judgement.depends_on_window is None:
        return "There is no other window to compare with."
    if not judgement.depends_on_window:
        word = "within" if judgement.num_within else "above"
        return f"The verdict does not depend on the window: under all {judgement.num_windows} usual windows the time is {word} the limit."
    give = "gives" if judgement.num_within == 1 else "give"
    return (
        f"The verdict depends on the window: of {judgement.num_windows} usual windows {judgement.num_within} {give} a time within the limit and "
        f"{judgement.num_windows - judgement.num_within} one above it; agree on the window before you agree on the number."
    )


def other_windows(measured: Throughput, tokens: int, judgement: Verdict | None) -> Table:
    """Return the number under the windows of other tools, and what each would say of the limit; empty without another."""
    if not measured.sensitivity:
        return []
    window = measured.window
    own = f"steady (this report): {_where(window.first_iteration, window.last_iteration)}"
    found = [(own, measured.steady, window.num_records)]
    found += [
        (f"{c.name}{f' ({c.used_by})' if c.used_by else ''}", c.tokens_per_second, c.num_records)
        for c in measured.sensitivity
    ]
    names, rates, numbers = zip(*found, strict=True)
    times = [tokens / rate for rate in rates]
    limit = [Column(heading="limit", cells=["within" if time_s <= judgement.limit_s else "above" for time_s in times], is_text=True)] if judgement else []  # fmt: skip
    return [
        Column(heading="tokens/s", cells=rates, form=number),
        Column(heading="time s", cells=times, form=number),
        Column(heading="lines", cells=numbers),
        *limit,
        Column(heading="window", cells=names, is_text=True),
    ]
