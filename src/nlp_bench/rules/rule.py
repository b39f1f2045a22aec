"""What every rule has, whatever it checks."""

from dataclasses import dataclass

from nlp_bench.errors import UsageError, nearest
from nlp_bench.measure.findings import Evidence, Finding, Status, evidence
from nlp_bench.rules.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One table `[rules.ID]` of a rule file; each kind of check adds its own keys."""

    check: str
    """The kind of check."""
    why: str
    """The rule for people, in a sentence."""
    models: tuple[str, ...] = ()
    """The models that it holds for; empty for all models of the file."""
    apply: bool = True
    """False takes the rule away, in a file that extends another."""
    required_evidence: bool = False
    """Whether missing evidence breaks the rule, in place of being not shown."""
    outcome: str | None = None
    """What a broken rule does to the number: INVALID takes it away always, VALID never; None when a person asks for the rules."""

    def __post_init__(self) -> None:
        if not self.why.strip():
            raise UsageError("why: empty; say in a sentence what the rule is for")
        if self.outcome not in {None, "INVALID", "VALID"}:
            raise UsageError(f"outcome: {self.outcome!r} is not INVALID or VALID")

    def look(self, subject: Subject) -> list[Evidence]:
        """Return what the run shows."""
        raise NotImplementedError

    def finding(self, rule: str, subject: Subject) -> Finding:
        """Return the word of the rule called `rule`."""
        shown = tuple(self.look(subject))
        found = {one.status for one in shown} - {None}
        status = Status.FAIL if Status.FAIL in found else Status.PASS if found == {Status.PASS} else Status.NOT_SHOWN
        if status is Status.NOT_SHOWN and self.required_evidence:
            status = Status.FAIL
        return Finding(rule=rule, check=self.check, why=self.why, status=status, outcome=self.outcome, evidence=shown)


def one_of(key: str, word: str, known: tuple[str, ...]) -> None:
    """Raise UsageError, naming the nearest, where `word` is none of `known`."""
    if word not in known:
        raise UsageError(f"{key}: {word!r} is unknown{nearest(word, list(known))}")


def share(key: str, value: float) -> None:
    """Raise UsageError where `value` is no share."""
    if not 0 <= value <= 1:
        raise UsageError(f"{key}: {value:g} is no share; write one from 0 to 1, as 0.01 for 1 %")


def above_zero(key: str, value: float) -> None:
    """Raise UsageError where `value` is not above 0 or not finite."""
    if not 0 < value < float("inf"):
        raise UsageError(f"{key}: {value:g} is not above 0")


def decided(name: str, value: str | float | None, expected: str, source: str | None, *, passes: bool) -> Evidence:
    """Return the evidence of one value that passes or fails."""
    return evidence(name, Status.PASS if passes else Status.FAIL, value, expected, source)


def missing(name: str, expected: str, why: str | None = None) -> Evidence:
    """Return that nobody states `name`; `why` says what stands in its place."""
    return evidence(name, Status.NOT_SHOWN, None, expected, why)
