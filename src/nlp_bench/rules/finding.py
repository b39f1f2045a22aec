"""What one rule found in one run: a word, and the values that it rests on with their sources."""

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from nlp_bench.measure.workload import Value
from nlp_bench.show.escape import one_line

MAX_TEXT = 120
"""Characters of a value that a log may put into a sentence."""


class Status(str, Enum):
    """What a rule says of a run."""

    PASS = "PASS"  # noqa: S105  # no password
    """The evidence is there and keeps the rule."""
    FAIL = "FAIL"
    """The evidence is there and breaks the rule."""
    NOT_SHOWN = "NOT SHOWN"
    """The evidence is missing, or proves neither."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One value that a rule looked at."""

    name: str
    """Name of the value, of `measure.workload` where it is a setting."""
    status: Status | None
    """What it says of the rule; None where it is shown and decides nothing."""
    value: Value | None = None
    """What was found, in the unit of the name; None where nobody states it."""
    expected: Value | None = None
    """What the rule wants: the value itself, or words."""
    source: str | None = None
    """`log line N`, `run.json`, `outcome.json` or how it was derived; without a value, what is there in its place."""

    def sentence(self) -> str:
        """Return it for people, in one line."""
        wanted = "" if self.expected in {None, self.value} else f", expected {shown(self.expected)}"
        if self.value is None:
            return f"{self.name} is not stated{f': {one_line(self.source)}' if self.source else ''}{wanted}"
        where = f" ({one_line(self.source)})" if self.source else ""
        return f"{self.name} is {shown(self.value)}{where}{wanted}"

    def to_json(self) -> dict[str, Any]:
        """Return it as an object; a number that JSON does not have is its word."""
        return {
            "name": self.name,
            "status": self.status.value if self.status else None,
            "value": _plain(self.value),
            "expected": _plain(self.expected),
            "source": self.source,
        }


@lru_cache(maxsize=4096, typed=True)
def evidence(
    name: str,
    status: Status | None,
    value: Value | None = None,
    expected: Value | None = None,
    source: str | None = None,
) -> Evidence:
    """Return one value that a rule looked at: thousands of runs of one configuration say the same, and share it."""
    return Evidence(name=name, status=status, value=value, expected=expected, source=source)


# Without slots: reports of many runs are sent between processes, and what has slots is sent field by field.
@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one rule found."""

    rule: str
    """The rule's id: its name in the file."""
    check: str
    """What kind of rule it is."""
    why: str
    """The rule for people, in a sentence."""
    status: Status
    """The rule's word."""
    outcome: str | None
    """What a broken rule does to the number: see `rule.Rule.outcome`."""
    evidence: tuple[Evidence, ...]
    """What it rests on."""

    def reason(self, most: int = 3) -> str:
        """Return the rule's id and what does not pass, at most so many values, in one line."""
        deciding = [one for one in self.evidence if one.status is self.status]
        # What is missing although the rule requires it fails the rule without failing by itself.
        deciding = deciding or [one for one in self.evidence if one.status is Status.NOT_SHOWN] or list(self.evidence)
        said = "; ".join(one.sentence() for one in deciding[:most]) or "no evidence"
        more = f" and {len(deciding) - most} more" if len(deciding) > most else ""
        beside = "".join(f"; {one.sentence()}" for one in self.evidence if one.status is None and one.value is not None)
        return f"{self.rule}: {said}{more}{beside}"

    def to_json(self) -> dict[str, Any]:
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
    text = one_line(value)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."


def _plain(value: Value | None) -> Value | None:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
