"""What a whole rule file says of one run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlp_bench.measure.workload import Value
from nlp_bench.rules.finding import Finding, Status, shown

VALID, INVALID, NOT_SHOWN = "VALID", "INVALID", "NOT SHOWN"
MAX_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The findings of all rules that apply to one run."""

    rules: str
    """Name of the rule file, without .toml."""
    digest: str
    """SHA-256 over the rule file, those it extends and the model files: two judgements by one digest used the same rules."""
    model: str | None
    """The model whose values are frozen; None where nothing tells which it is."""
    is_asked: bool
    """Whether a person asked for these rules; False where they are the default of the run's model."""
    findings: tuple[Finding, ...]
    """In the order of the file."""
    free: Mapping[str, Value]
    """What the run chose where the rules leave it free, as far as it is stated."""

    @property
    def result(self) -> str:
        """VALID when every rule passes, INVALID when one fails, else NOT SHOWN: silence makes no run valid."""
        found = {finding.status for finding in self.findings}
        if Status.FAIL in found:
            return INVALID
        return VALID if found == {Status.PASS} else NOT_SHOWN

    def having(self, status: Status) -> list[Finding]:
        """Return the findings with this word."""
        return [finding for finding in self.findings if finding.status is status]

    def voiding(self) -> list[Finding]:
        """Return the broken rules that take the number away."""
        return [
            finding
            for finding in self.having(Status.FAIL)
            if finding.outcome == INVALID or (self.is_asked and finding.outcome != VALID)
        ]

    def note(self, *, but: Sequence[Finding] = ()) -> str:
        """Return all of it in one line, `but` findings that are told elsewhere."""
        passed = f"{len(self.having(Status.PASS))} of {len(self.findings)} rules pass"
        said = f"rules {self.rules}: {self.result}"
        failed = [finding for finding in self.having(Status.FAIL) if finding not in but]
        missing = self.having(Status.NOT_SHOWN)
        if failed:
            said += f", {_some(finding.reason() for finding in failed)}"
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
            text = _some((e.sentence() for e in finding.evidence), 99) if passed else finding.reason(99)
            yield finding.status.value, f"{finding.rule}: {text}" if passed else f"{text}. {finding.why}"
        if self.free:
            yield "free", ", ".join(f"{name} {shown(value)}" for name, value in self.free.items())

    def to_json(self) -> dict[str, Any]:
        """Return the object `rules` of nlp-bench/report/1."""
        return {
            "rules": self.rules,
            "sha256": self.digest,
            "result": self.result,
            "model": self.model,
            "free": dict(self.free),
            "findings": [finding.to_json() for finding in self.findings],
        }


def _some(texts: Iterable[str], most: int = MAX_NAMED) -> str:
    listed = list(texts)
    more = len(listed) - most
    return "; ".join(listed[:most]) + (f"; and {more} more" if more > 0 else "")
