"""The declarative form of a record line: a regular expression with named quantities; further expressions read facts.

A name in an expression is a quantity of `logs.quantity`, or one with another unit at its end.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.quantity import duration_s, in_unit, number
from nlp_bench.logs.scan import Line


def quantities(found: re.Match[bytes], *, cut_at: int = -1) -> tuple[dict[str, float], bool]:
    """Return the named groups of `found` as quantities in their units, and whether each that matched is a number.

    A group whose name ends in `_clock` is a clock text such as `1:03:17`. One that ends at `cut_at` is no number: it may
    have been cut short.
    """
    values: dict[str, float] = {}
    is_whole = True
    for name, text in found.groupdict().items():
        if text is None:
            continue
        if found.end(name) == cut_at:
            is_whole = False
            continue
        is_clock = name.endswith("_clock")
        value = duration_s(text) if is_clock else number(text)
        if value is None:
            is_whole = False
            continue
        quantity, converted = in_unit(name.removesuffix("_clock") + "_s" if is_clock else name, value)
        values[quantity] = converted
    return values, is_whole


def is_cut(line: Line, text: bytes, end: int) -> bool:
    """Say whether what ends at `text[end]` may have been cut short: it is the last word of a line that was never ended."""
    return not line.is_ended and end >= len(text)


@dataclass(frozen=True)
class Pattern:
    """A record is one match of `record`; each match of an expression of `facts` states the facts of its group names."""

    record: re.Pattern[bytes]
    facts: tuple[re.Pattern[bytes], ...] = ()
    start: re.Pattern[bytes] | None = None
    """A line that a program prints once when it starts."""
    skip: re.Pattern[bytes] | None = None
    """Lines that look like a record and are none, such as those of an evaluation."""
    reads_each_line: ClassVar = True

    def __call__(self) -> "Pattern":
        """Return itself: it remembers nothing, so one object parses every log."""
        return self

    def take(self, line: Line, findings: Findings) -> None:
        """Read every match on the line."""
        for text in pieces(line.text):
            if self.start and self.start.search(text):
                findings.start(line)
            take_facts(self.facts, text, line, findings)
            if self.skip and self.skip.search(text):
                continue
            for found in self.record.finditer(text):
                values, is_whole = quantities(found, cut_at=-1 if line.is_ended else len(text))
                is_whole = is_whole and not is_cut(line, text, found.end())
                findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


def take_facts(facts: tuple[re.Pattern[bytes], ...], text: bytes, line: Line, findings: Findings) -> None:
    """Tell `findings` each fact that an expression finds in `text`; the group `device` is text, the others are numbers."""
    for expression in facts:
        found = expression.search(text)
        if not found:
            continue
        for name, value in found.groupdict().items():
            if name == "device" and value:
                findings.fact(name, value.decode(errors="replace").strip(), line)
            elif value and (count := number(value)) is not None:
                findings.fact(name, count, line)
