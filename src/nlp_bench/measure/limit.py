"""The verdict on a limit of the steady time: PASS, FAIL or NOT PROVEN, with the margin and the reasons."""

import math
from collections.abc import Iterable

from nlp_bench.immutable import immutable
from nlp_bench.measure import Json, Texts
from nlp_bench.measure.contradiction import contradicting
from nlp_bench.measure.estimate import Pair
from nlp_bench.measure.judgement import Status
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.throughput import Throughput, time_to_report_s, times_to_report_s
from nlp_bench.measure.window import MAX_MARKED
from nlp_bench.reason import texts

PASS, FAIL, NOT_PROVEN = "PASS", "FAIL", "NOT PROVEN"


@immutable
class Meaning:
    """What a word of a verdict says to those who show it or decide by it."""

    kind: str  # good, bad or open: its colour on a page
    status: Status  # what it says of a rule with this limit
    proves: str = ""  # what the run is proven to do to the limit; empty: nothing, and the reasons say why


VERDICTS = {
    PASS: Meaning(kind="good", status=Status.PASS, proves="keep"),
    FAIL: Meaning(kind="bad", status=Status.FAIL, proves="miss"),
    NOT_PROVEN: Meaning(kind="open", status=Status.NOT_SHOWN),
}
UNIT_FACTOR = 100  # a limit so many times above the measured time is meant in another unit, milliseconds as a rule


@immutable
class Verdict:
    """The verdict on one run."""

    word: str
    limit_s: float
    margin: float | None  # (limit - time) / limit, of the steady (else the reference) time; negative above it
    worst_margin: float | None  # the same of the slow end of the 95 % interval
    num_windows: int  # windows under which the number was computed, the steady one among them
    num_within: int  # those of them whose time is within the limit
    reasons: Texts  # why it is not proven; empty otherwise
    sustained: str | None = None  # the same verdict on the sustained time; None where that has no interval

    @property
    def depends_on_window(self) -> bool | None:
        """Say whether other windows would say otherwise, None where there is only one."""
        return 0 < self.num_within < self.num_windows if self.num_windows > 1 else None

    def to_json(self) -> Json:
        """Return the `verdict` object of nlp-bench/report/1."""
        names = ("limit_s", "margin", "worst_margin", "num_windows")
        return {
            "verdict": self.word,
            **{name: getattr(self, name) for name in names},
            "num_windows_within": self.num_within,
            "depends_on_window": self.depends_on_window,
            "reasons": list(self.reasons),
            "sustained": self.sustained,
        }


def verdict_of(entry: RunResult, tokens: int, limit_s: float) -> Verdict:
    """Return PASS when the whole 95 % interval of the time is at or below `limit_s`, FAIL when all of it is above.

    Anything else is NOT PROVEN: an interval on both sides of the limit, no interval, no number, a limit too large to be in
    seconds, what contradicts the number, a slower speed at the end of the run which would break the limit, a limit that is kept only
    without intervals that the log calls an evaluation or a checkpoint, or without a long or costly warm-up, and one that is
    broken by another statement of the log, such as its clock.
    """
    time_s, measured = time_to_report_s(tokens, entry.rate), entry.throughput
    interval, unsound = _decided_by(entry, tokens, limit_s), why_unsound(entry)
    rates = [choice.tokens_per_second for choice in measured.sensitivity] if measured else []
    rates += [entry.rate] if entry.rate else []
    ending = measured.ending_seconds_per_token if measured else None
    word, reasons = decided(
        interval,
        limit_s,
        [*unsound] if interval else [_why_no_interval(entry)],
        [why_broken_otherwise(entry, tokens, limit_s)],
        ending and tokens * ending,
    )
    over_wall_clock = None
    if measured and measured.sustained and (sustained := sustained_time_ci95_s(entry, tokens)):
        untimed = "time between the lines is in no statement" if measured.sustained.num_untimed else None
        over_wall_clock, _ = decided(
            sustained, limit_s, unsound, [untimed, _broken_by_statement(entry, tokens, limit_s)]
        )
    return Verdict(
        word=word,
        limit_s=limit_s,
        margin=None if time_s is None else 1 - time_s / limit_s,
        worst_margin=1 - interval[1] / limit_s if interval and math.isfinite(interval[1]) else None,
        num_windows=len(rates),
        num_within=sum(tokens / rate <= limit_s for rate in rates),
        reasons=tuple(reasons),
        sustained=over_wall_clock,
    )


def _decided_by(entry: RunResult, tokens: int, limit_s: float) -> Pair | None:
    """Return the interval of the time that decides, shortest first; None where nothing does.

    A run without an interval misses a limit that not even its fastest interval keeps.
    """
    if interval := entry.time_ci95_s(tokens):
        return interval
    estimate = entry.throughput.estimate if entry.throughput else None
    fastest_s = tokens * estimate.fastest if estimate else 0.0
    return (fastest_s, math.inf) if fastest_s > limit_s else None


def sustained_time_ci95_s(entry: RunResult, tokens: int) -> Pair | None:
    """Return the 95 % interval of the sustained time in seconds, shortest first, None where there is none."""
    found = entry.throughput.sustained if entry.throughput else None
    return times_to_report_s(tokens, found.ci95 if found else None)


def word_of(interval_s: Pair | None, limit_s: float) -> str:
    """Return the word for a 95 % interval of the time, shortest first."""
    if interval_s is None or interval_s[0] <= limit_s < interval_s[1]:
        return NOT_PROVEN
    return PASS if interval_s[1] <= limit_s else FAIL


def decided(
    interval_s: Pair | None,
    limit_s: float,
    unsound: Iterable[str],
    broken: Iterable[str | None] = (),
    ending_s: float | None = None,
) -> tuple[str, list[str]]:
    """Return the word for a 95 % interval of the time (shortest first), and why it proves nothing.

    `unsound` is why the number proves nothing whatever it is; `broken` what would break a limit that the interval keeps.
    """
    reasons = list(unsound)
    if interval_s and not reasons:
        why = why_interval_proves_nothing(interval_s, limit_s, ending_s)
        if why is None and interval_s[1] <= limit_s:
            why = next(filter(None, broken), None)
        reasons = [why] if why else []
    return NOT_PROVEN if reasons else word_of(interval_s, limit_s), reasons


def _why_no_interval(entry: RunResult) -> str:
    if not entry.has_number:
        return f"the run has no number: its outcome is {entry.outcome.value}"
    why = entry.throughput.why_no_interval if entry.throughput else "a published value without a log has no interval"
    return why or "no 95 % interval"


def why_unsound(entry: RunResult) -> list[str]:
    """Return why the number of a run proves no limit, whatever its interval; empty where it may."""
    if entry.ending and entry.ending.text and not entry.ending.proves:
        return [entry.ending.text]
    return texts(contradicting(entry.doubts))


def why_broken_otherwise(entry: RunResult, tokens: int, limit_s: float) -> str | None:
    """Return what the interval leaves out and would break the limit: intervals that were set aside, another statement of the log; None where nothing would."""
    without = _why_not_without(entry.throughput, tokens, limit_s) if entry.throughput else None
    return without or _broken_by_statement(entry, tokens, limit_s)


def _broken_by_statement(entry: RunResult, tokens: int, limit_s: float) -> str | None:
    """Return what else the log says of its time that would break the limit, None where nothing would."""
    slowest = max(entry.slower_statements, key=lambda each: each.slower, default=None)
    time_s = tokens / entry.steady * slowest.slower if slowest and entry.steady else 0.0
    return f"by {slowest.source} the limit is not kept: {time_s:.2f} s" if slowest and time_s > limit_s else None


def _why_not_without(measured: Throughput, tokens: int, limit_s: float) -> str | None:
    """Return what was left out of the window that would break the limit if all of it counted, None where nothing would."""
    window = measured.window
    seconds, num_tokens, share, names = window.seconds, window.num_tokens, 0.0, []
    for why, aside in window.set_aside.items():
        is_warm_up = why == "warm-up"
        excess_s = aside.seconds - aside.num_tokens * window.seconds / window.num_tokens
        excuses_little = measured.steadiness.long_warm_up is None and excess_s <= MAX_MARKED * window.seconds
        if why != "slow end" and not (is_warm_up and excuses_little):
            seconds, num_tokens, share = seconds + aside.seconds, num_tokens + aside.num_tokens, share + aside.share
            names.append("the warm-up" if is_warm_up else f"what the log calls {why}")
    if names and (slow_end := window.set_aside.get("slow end")):
        seconds, num_tokens = seconds + slow_end.seconds, num_tokens + slow_end.num_tokens
    counted_s = tokens * seconds / num_tokens
    if not names or counted_s <= limit_s:
        return None
    what = f"{' and '.join(names)} ({100 * share:.1f} % of the intervals)"
    return f"only without {what} is the limit kept: with it the time is {counted_s:.2f} s"


def why_interval_proves_nothing(interval_s: Pair, limit_s: float, ending_s: float | None) -> str | None:
    """Return why a 95 % interval of the time (shortest first) alone proves nothing against `limit_s`, None where it does; `ending_s` is the time at a slower end, if any."""
    low, high = interval_s
    if low <= limit_s < high:
        return f"the limit lies inside the 95 % interval of {low:.2f} to {high:.2f} s"
    if high * UNIT_FACTOR <= limit_s:
        return f"the limit is {limit_s / high:.0f} times the time, as if it were not in seconds; give it in seconds"
    if high <= limit_s and ending_s and ending_s > limit_s:
        slower = f"the run ends at a slower speed, at which it would take {ending_s:.2f} s"
        return f"{slower}; a longer run has to show which one lasts"
    return None
