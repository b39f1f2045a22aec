"""`--pattern`: how a person says which lines of a log are records, by regular expressions whose group names are quantities."""

import difflib
import re
from collections.abc import Sequence

from nlp_bench.errors import UsageError
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.forms import Pattern
from nlp_bench.logs.quantity import FACTS, RATES, ROW, UNITS

NAME = "pattern"
"""Of the dialect that a person has described."""
_OTHER = {"elapsed_clock": "elapsed_s", "clock_clock": "clock_s", "iterations_per_second": "elapsed_s"}
_TIMED = frozenset((*RATES, "clock_s"))
QUANTITIES = (*ROW, *UNITS, *_OTHER)
"""Names that a group of a record may have."""


def pattern_dialect(expressions: Sequence[str]) -> Dialect:
    """Return the dialect of `expressions`: one finds the records, the others find facts, such as a group sequence_length.

    Raises UsageError for one that is no regular expression, has no named group or an unknown name, and where none or several of them have
    a time or a rate.
    """
    compiled = [_compiled(text) for text in expressions]
    records = [each for each in compiled if _is_timed(each)]
    if len(records) != 1:
        named = ", ".join(repr(each.pattern.decode()) for each in records) or "none has"
        raise UsageError(
            f"pattern: one expression has to name a time or a rate ({', '.join(sorted(_TIMED))}, or elapsed_ms), here: {named}"
        )
    for each in compiled:
        if each is not records[0] and (wrong := each.groupindex.keys() - set(FACTS)):
            raise UsageError(f"pattern: {min(wrong)} is no fact of a whole log; facts are {', '.join(FACTS)}")
    return Dialect(
        name=NAME,
        title="lines that --pattern describes",
        source="the command line",
        example="",
        trap="what the person says of a line is believed",
        needles=tuple(b"%d" % digit for digit in range(10)),
        parser=Pattern(record=records[0], facts=tuple(each for each in compiled if each is not records[0])),
    )


def _compiled(text: str) -> re.Pattern[bytes]:
    try:
        expression = re.compile(text.encode())
    except (re.error, UnicodeEncodeError) as error:
        raise UsageError(f"pattern: {text!r:.200} is no regular expression of Python: {error}") from error
    if not expression.groupindex:
        raise UsageError(
            f"pattern: {text!r:.200} has no named group; an example: --pattern 'step (?P<iteration>\\d+) .* (?P<elapsed_ms>[\\d.]+) ms'"
        )
    for name in expression.groupindex.keys() - {*QUANTITIES, *FACTS}:
        near = difflib.get_close_matches(name, [*QUANTITIES, *FACTS], n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"pattern: group {name} is no quantity{meant} (known: {', '.join(dict.fromkeys((*QUANTITIES, *FACTS)))})"
        )
    return expression


def _is_timed(expression: re.Pattern[bytes]) -> bool:
    names = {_OTHER.get(name) or UNITS.get(name, (name, 1.0))[0] for name in expression.groupindex}
    return not _TIMED.isdisjoint(names)
