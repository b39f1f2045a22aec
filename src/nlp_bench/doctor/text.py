"""The findings as a table for people."""

from collections.abc import Sequence

from nlp_bench.doctor.examine import Examined
from nlp_bench.doctor.finding import FAILED, OK, SKIPPED, STATUSES, WARNING
from nlp_bench.show.escape import one_line


def table(examined: Sequence[Examined], *, is_verbose: bool = False) -> str:
    """Return one line per check; evidence and remedy below what is not well, below everything when verbose."""
    width = max((len(one.name) for one in examined), default=0)
    lines = []
    for one in examined:
        found = one.finding
        lines.append(f"{found.status:<8} {one.name:<{width}}  {one_line(found.summary)}")
        indent = " " * (width + 11)
        if is_verbose or found.status in {WARNING, FAILED}:
            lines += [f"{indent}{one_line(text)}" for text in found.evidence if text]
        if found.remedy and found.status != OK:
            lines.append(f"{indent}next: {one_line(found.remedy)}")
    return "\n".join(lines)


def counts(examined: Sequence[Examined]) -> str:
    """Return how many checks ended with which word."""
    words = [one.finding.status for one in examined]
    parts = [f"{words.count(word)} {word}" for word in STATUSES if word in words]
    bad = [one.name for one in examined if one.finding.status == FAILED]
    hidden = words.count(SKIPPED) == len(words)
    return (
        ", ".join(parts)
        + (f"; failed: {', '.join(bad)}" if bad else "")
        + ("; nothing was looked at" if hidden else "")
    )
