"""What rules found in one run, as a part of its result: a word each, and the values that it rests on with their sources."""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache

from nlp_bench.escape import one_line, shortened, some
from nlp_bench.immutable import immutable
from nlp_bench.measure import Json
from nlp_bench.measure.workload import Value

VALID, INVALID, NOT_SHOWN = "VALID", "INVALID", "NOT SHOWN"
MAX_NAMED = 3
MAX_TEXT = 120  # characters of a value that a log may put into a sentence


class Status(str, Enum):
    """What a rule says of a run."""

    PASS = "PASS"  # noqa: S105  # the evidence is there and keeps the rule
    FAIL = "FAIL"  # the evidence is there and breaks the rule
    NOT_SHOWN = "NOT SHOWN"  # the evidence is missing, or proves neither


@immutable(kw_only=False)
class RuleEvidence:
    """One value that a rule looked at."""

    name: str  # name of the value, of `measure.workload` where it is a setting
    status: Status | None  # what it says of the rule; None where it is shown and decides nothing
    value: Value | None = None  # what was found, in the unit of the name; None where nobody states it
    expected: Value | None = None  # what the rule wants: the value itself, or words
    source: str | None = None
    """`log line N`, `run.json`, `outcome.json` or how it was derived; without a value, what is there in its place."""

    def sentence(self) -> str:
        """Return it for people, in one line."""
        wanted = "" if self.expected in {None, self.value} else f", expected {shown(self.expected)}"
        if self.value is None:
            return f"{self.name} is not stated{f': {one_line(self.source)}' if self.source else ''}{wanted}"
        where = f" ({one_line(self.source)})" if self.source else ""
        return f"{self.name} is {shown(self.value)}{where}{wanted}"

    def to_json(self) -> Json:
        """Return it as an object; a number that JSON does not have is its word."""
        status, value, expected = self.status, plain_number(self.value), plain_number(self.expected)
        return {**vars(self), "status": status.value if status else None, "value": value, "expected": expected}


# Thousands of runs of one configuration share what they say.
evidence = lru_cache(maxsize=4096, typed=True)(RuleEvidence)


@immutable
class RuleFinding:
    """What one rule found."""

    rule: str
    check: str
    why: str  # the rule for people, in a sentence
    status: Status
    outcome: str | None  # what a broken rule does to the number: see `rule.Rule.outcome`
    evidence: tuple[RuleEvidence, ...]

    def reason(self, most: int = 3) -> str:
        """Return the rule's id and what does not pass, at most so many values, in one line."""
        deciding = [one for one in self.evidence if one.status is self.status]
        # What is missing although the rule requires it fails the rule without failing by itself.
        deciding = deciding or [one for one in self.evidence if one.status is Status.NOT_SHOWN] or list(self.evidence)
        said = "; ".join(one.sentence() for one in deciding[:most]) or "no evidence"
        more = f" and {len(deciding) - most} more" if len(deciding) > most else ""
        beside = "".join(f"; {one.sentence()}" for one in self.evidence if one.status is None and one.value is not None)
        return f"{self.rule}: {said}{more}{beside}"

    def to_json(self) -> Json:
        """Return it as an object of `rules.findings`."""
        return {
            "rule": self.rule,
            "check": self.check,
            "why": self.why,
            "status": self.status.value,
            "evidence": [one.to_json() for one in self.evidence],
        }


def shown(value: Value) -> str:
    """Return a value in one line, with the digits that a person reads."""
    if isinstance(value, float):
        return f"{value:.10g}"
    return shortened(one_line(value), MAX_TEXT)


def plain_number(value: Value | None) -> Value | None:
    """Return a value as JSON has it: NaN and infinity as words."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@immutable
class Judgement:
    """The findings of all rules that apply to one run."""

    rules: str
    digest: str  # SHA-256 over the rule files and the models: two judgements by one digest used the same rules
    model: str | None  # the model whose values are frozen; None where nothing tells which it is
    is_asked: bool  # whether a person asked for these rules; False where they are the default of the run's model
    findings: tuple[RuleFinding, ...]
    free: Mapping[str, Value]  # what the run chose where the rules leave it free, as far as it is stated

    @property
    def result(self) -> str:
        """VALID when every rule passes, INVALID when one fails, else NOT SHOWN: silence makes no run valid."""
        found = {finding.status for finding in self.findings}
        if Status.FAIL in found:
            return INVALID
        return VALID if found == {Status.PASS} else NOT_SHOWN

    def having(self, status: Status) -> list[RuleFinding]:
        """Return the findings with this word."""
        return [finding for finding in self.findings if finding.status is status]

    def voiding(self) -> list[RuleFinding]:
        """Return the broken rules that take the number away."""
        return [
            finding
            for finding in self.having(Status.FAIL)
            if finding.outcome == INVALID or (self.is_asked and finding.outcome != VALID)
        ]

    def note(self, *, but: Sequence[RuleFinding] = ()) -> str:
        """Return all of it in one line, `but` findings that are told elsewhere."""
        passed = f"{len(self.having(Status.PASS))} of {len(self.findings)} rules pass"
        said = f"rules {self.rules}: {self.result}"
        failed = [finding for finding in self.having(Status.FAIL) if finding not in but]
        missing = self.having(Status.NOT_SHOWN)
        if failed:
            said += f", {some((finding.reason() for finding in failed), MAX_NAMED, '; ')}"
        if missing:
            words = ", ".join(finding.rule for finding in missing)
            said += f"; not shown: {words}" if self.result == INVALID else f", for want of evidence on {words}"
        return f"{said}; {passed}"

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield a word and a text for each rule, to be printed below each other."""
        of = f", model {self.model}" if self.model else ", model not known"
        yield "rules", f"{self.rules}: {self.result}{of} (sha256 {self.digest[:12]} of the rules and their models)"
        for finding in self.findings:
            passed = finding.status is Status.PASS
            text = "; ".join(e.sentence() for e in finding.evidence) if passed else finding.reason(99)
            yield finding.status.value, f"{finding.rule}: {text}" if passed else f"{text}. {finding.why}"
        if self.free:
            yield "free", ", ".join(f"{name} {shown(value)}" for name, value in self.free.items())

    def to_json(self) -> Json:
        """Return the object `rules` of nlp-bench/report/1."""
        return {
            "rules": self.rules,
            "sha256": self.digest,
            "result": self.result,
            "model": self.model,
            "free": dict(self.free),
            "findings": [finding.to_json() for finding in self.findings],
        }
