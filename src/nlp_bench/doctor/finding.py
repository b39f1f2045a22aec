"""What one check found: a word, a sentence, what was seen, and the command to type next."""

from collections.abc import Sequence
from dataclasses import dataclass

OK, SKIPPED, WARNING, FAILED = "ok", "skipped", "warning", "failed"
STATUSES = (OK, SKIPPED, WARNING, FAILED)
"""From harmless to bad. A skipped check says why; a warning costs speed or may end a run; what failed will end it."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The answer of one check."""

    status: str
    """ok, skipped, warning or failed."""
    summary: str
    """One sentence: what is the case, or why it was not looked at."""
    evidence: tuple[str, ...] = ()
    """What was seen: values with their source."""
    remedy: str = ""
    """A command to type or a thing to change; never empty where something failed."""


def ok(summary: str, *evidence: str) -> Finding:
    """Return that all is well."""
    return Finding(status=OK, summary=summary, evidence=evidence)


def skipped(why: str) -> Finding:
    """Return that this machine or this question gives nothing to look at."""
    return Finding(status=SKIPPED, summary=why)


def warning(summary: str, *evidence: str, remedy: str) -> Finding:
    """Return that a run may be slower, or may end badly."""
    return Finding(status=WARNING, summary=summary, evidence=evidence, remedy=remedy)


def failed(summary: str, *evidence: str, remedy: str) -> Finding:
    """Return that a run will fail."""
    return Finding(status=FAILED, summary=summary, evidence=evidence, remedy=remedy)


def together(found: Sequence[Finding], good: str) -> Finding:
    """Return one finding out of several: the worst word, the sentences and remedies that have it, all evidence.

    `good` is the sentence for when nothing is wrong.
    """
    worst = max((one.status for one in found), key=STATUSES.index, default=OK)
    evidence = tuple(line for one in found for line in one.evidence)
    if worst in {OK, SKIPPED}:
        return Finding(status=OK, summary=good, evidence=evidence)
    bad = [one for one in found if one.status == worst]
    milder = [one for one in found if one.status == WARNING and worst == FAILED]
    return Finding(
        status=worst,
        summary="; ".join(dict.fromkeys(one.summary for one in bad)),
        evidence=(*evidence, *(one.summary for one in milder)),
        remedy="; ".join(dict.fromkeys(one.remedy for one in bad if one.remedy)),
    )
