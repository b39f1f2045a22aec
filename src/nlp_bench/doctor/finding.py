"""What one check found: a status, a sentence, what was seen, and the command to type next."""

from collections.abc import Sequence

from nlp_bench.immutable import immutable

OK, SKIPPED, WARNING, FAILED = "ok", "skipped", "warning", "failed"
STATUSES = (OK, SKIPPED, WARNING, FAILED)
"""From harmless to bad. A skipped check says why; a warning costs speed or may end a run; what failed will end it."""


@immutable
class Finding:
    """The result of one check."""

    status: str  # one of STATUSES
    summary: str  # one sentence: what was found, or why it was not checked
    evidence: tuple[str, ...] = ()  # what was seen: values with their source
    remedy: str = ""  # a command to type or a thing to change; never empty where something failed


def ok(summary: str, *evidence: str) -> Finding:
    """Return that all is in order; without a summary only the evidence counts, among other findings."""
    return Finding(status=OK, summary=summary, evidence=evidence)


def skipped(why: str) -> Finding:
    """Return that there is nothing to check here, or no means to."""
    return Finding(status=SKIPPED, summary=why)


def warning(summary: str, *evidence: str, remedy: str) -> Finding:
    """Return that a run may be slower, or may fail."""
    return Finding(status=WARNING, summary=summary, evidence=evidence, remedy=remedy)


def failed(summary: str, *evidence: str, remedy: str) -> Finding:
    """Return that a run will fail."""
    return Finding(status=FAILED, summary=summary, evidence=evidence, remedy=remedy)


def together(found: Sequence[Finding]) -> Finding:
    """Return one finding out of several: the worst status, the sentences and remedies that have it, all evidence."""
    worst = max((one.status for one in found if one.status != SKIPPED), key=STATUSES.index, default=SKIPPED)
    decisive = [one for one in found if one.status == worst]
    milder = [one.summary for one in found if one.status == WARNING and worst == FAILED]
    return Finding(
        status=worst,
        summary="; ".join(dict.fromkeys(one.summary for one in decisive if one.summary)),
        evidence=(*(line for one in found for line in one.evidence), *milder),
        remedy="; ".join(dict.fromkeys(one.remedy for one in decisive if one.remedy)),
    )
