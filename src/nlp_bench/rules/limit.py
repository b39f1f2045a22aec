"""The rule on the time of the hypothetical training: proven to be within a limit, or not."""

from dataclasses import dataclass

from nlp_bench.measure.findings import Evidence, Status
from nlp_bench.measure.limit import FAIL, PASS, sustained_time_ci95_s, verdict_of
from nlp_bench.measure.throughput import REPORT_TOKENS, time_to_report_s
from nlp_bench.rules.rule import Rule, above_zero, missing, one_of
from nlp_bench.rules.subject import Subject

STEADY_INTERVAL, STEADY, REFERENCE = "steady-interval", "steady", "reference"
SUSTAINED_INTERVAL, SUSTAINED = "sustained-interval", "sustained"


@dataclass(frozen=True, kw_only=True)
class TimeLimit(Rule):
    """The time is at most a limit; both times are shown, one decides."""

    limit_s: float
    """Seconds."""
    tokens: int = REPORT_TOKENS
    """Tokens of the hypothetical training."""
    decides: str
    """steady-interval, sustained-interval: the whole 95 % interval of that time; steady, sustained, reference: the value alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero("limit_s", self.limit_s)
        above_zero("tokens", self.tokens)
        one_of("decides", self.decides, (STEADY_INTERVAL, SUSTAINED_INTERVAL, STEADY, SUSTAINED, REFERENCE))

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at both times."""
        entry, limit = subject.entry, f"at most {self.limit_s:g} s"
        if not entry.has_number:
            return [missing("time_to_report_s", limit, "nothing was measured")]
        times = {
            STEADY: time_to_report_s(self.tokens, entry.steady),
            SUSTAINED: time_to_report_s(self.tokens, entry.sustained),
            REFERENCE: time_to_report_s(self.tokens, entry.reference),
        }
        decides = self.decides.removesuffix("-interval")
        return [
            Evidence(
                name=f"time_to_report_{name}_s",
                status=self._status(subject, value) if name == decides else None,
                value=None if value is None else round(value, 3),
                expected=self._expected(subject) if name == decides else None,
                source=self._source(subject, name),
            )
            for name, value in times.items()
        ]

    def _source(self, subject: Subject, name: str) -> str:
        measured = subject.entry.throughput
        if name == REFERENCE or measured is None:
            return "all logged times, warm-up included" if measured else "published"
        if name == SUSTAINED:
            found = measured.sustained
            return (
                f"iterations {found.first_iteration} to {found.last_iteration}, {found.clock}" if found else "not known"
            )
        return f"iterations {measured.window.first_iteration} to {measured.window.last_iteration}"

    def _expected(self, subject: Subject) -> str:
        limit = f"at most {self.limit_s:g} s"
        if self.decides not in {STEADY_INTERVAL, SUSTAINED_INTERVAL}:
            return limit
        is_steady = self.decides == STEADY_INTERVAL
        interval = (
            subject.entry.time_ci95_s(self.tokens) if is_steady else sustained_time_ci95_s(subject.entry, self.tokens)
        )
        words = f"{interval[0]:.2f} to {interval[1]:.2f} s" if interval else "not known"
        return f"{limit} over the whole 95 % interval, which is {words}"

    def _status(self, subject: Subject, value: float | None) -> Status:
        if self.decides not in {STEADY_INTERVAL, SUSTAINED_INTERVAL}:
            return Status.NOT_SHOWN if value is None else Status.PASS if value <= self.limit_s else Status.FAIL
        words = {PASS: Status.PASS, FAIL: Status.FAIL}
        found = verdict_of(subject.entry, self.tokens, self.limit_s)
        return words.get(found.word if self.decides == STEADY_INTERVAL else found.sustained or "", Status.NOT_SHOWN)
