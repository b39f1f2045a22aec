"""The line of an unread log that comes nearest to a training line, and the `--pattern` that may read it."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from heapq import nlargest
from itertools import islice, pairwise
from typing import Any

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import pieces
from nlp_bench.logs.dialects.unknown import AIM, DEVICE
from nlp_bench.logs.pattern import late
from nlp_bench.logs.quantity import duration_s, number

_MAX_BYTES, _MAX_LINES, _MAX_SHAPES, _MAX_ROWS, _MAX_SHOWN = 1000, 20_000, 200, 1000, 160
_NUMBER, _CELL = (
    late(
        rb"(?<![\w.])(?:\d{1,4}:\d\d(?::\d\d)?(?:\.\d+)?|[-+]?(?:%b\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?)(?!\d|:\d)"
        % thousands
    )
    for thousands in (rb"\d{1,3}(?:,\d{3})+(?!\d)|", b"")
)
_LETTERS = late(rb"[A-Za-z]{2}")  # a line without any is one of a table, whose commas part cells
_OWN_UNIT = late(rb" ?[kKMG]?[ (\[]{0,2}[A-Za-z]\w*[ ]?(?:/|per)[ ]?[A-Za-z]\w*(?:[ ]?(?:/|per)[ ]?\w+)?\b(?!=|:[ \d])")
_NO_TRAINING = late(rb"(?i)(?<![a-z])(?:e?val(?:id\w*|uat\w*)?|test|infer\w*|generat\w*)(?![a-z])")
_SMOOTH = r"avg|average|mean|ema\b|smooth|" + AIM.decode()
_NO_TIME = _SMOOTH + r"|eta\b|remain|left|data|load|forward|backward|\b[fb]wd|comm|optim|lr|mem"
_PARTS = {
    "TOKENS": r"to?k(?:en)?s?",
    "STEP": r"(?:it|iter(?:ation)?|step|batch|update)",
    "DEVICE": DEVICE.decode(),
    "PER": r"[ _]?(?:/|per|p)[ _]?",
    "SECOND": r"s(?:ec(?:ond)?s?)?(?![a-z])",
    "IS": r"[\"']?[^\w\n]{0,9}\#",  # between a name and its number
    "MILLI": r"m(?:illi)?s(?:ec(?:ond)?s?)?",
    "MICRO": r"us(?:ec)?",
    "MINUTE": r"m(?:in(?:ute)?s?)?",
    "HOUR": r"h(?:(?:ou)?rs?)?",
}
_PART = re.compile(r"\b[A-Z]{2,}\b")
_WITHOUT = {"elapsed": _NO_TIME, "tokens": AIM.decode()}
_Row = tuple[str, re.Pattern[bytes], re.Pattern[bytes]]
_UNITS = {"ms": "MILLI", "us": "MICRO", "s": "SECOND", "min": "MINUTE", "h": "HOUR"}
_VOCABULARY = r"""
tokens_per_second_per_device  TOKENS PER DEVICE PER SECOND|(?:TOKENS PER SECOND|\btps) PER DEVICE
tokens_per_second  TOKENS PER SECOND|\b(?:tps|wps)\b
samples_per_second  (?:sample|seq(?:uence)?|example|sent(?:ence)?)s? PER SECOND
iterations_per_second  \b STEP (?:e?s)? PER SECOND
elapsed_  (?<![a-z]) UNIT PER STEP
--
iteration  (?<![a-z/])(?<!per[\ _])(?: STEP |progress)(?:e?s|_num|_idx)?\b IS \d+\$
iteration  \#\d+\$(?:(?:st|nd|rd|th)\ |\ ) STEP (?:e?s)?\b(?!\ ?[/=:~-]|\ per)
iteration  ^[\ (\[|\#<]*\#\d+\$(?:[\])>]|\ \||[\])]?\ ?(?:/|of)\ ?[\[(]?$)
lm_loss  (?:loss|nll|ppl|perplexity|cross.?entropy|\bx?ce\b|x?ent\b|cost)(?:\ is|\ of)? IS
elapsed_clock  (?:time|elapsed|clock|took|wall|so\ far)[^#]*\#\d+:
elapsed_  \$\ ?[(\[]? UNIT (?![\w/=])|[\ _(\[/] UNIT IS
tokens  TOKENS (?:[\ _](?:seen|so\ far|total|consumed|processed)|/\w+)? IS \d+\$
tokens  \d\$\  TOKENS \b(?!\ ?[/=:~-]|\ per|\ seen)
"""
"""Quantity and form: of a rate's unit or name, then of `NAME #NUMBER$ UNIT`. The first that matches counts; blanks only part the words."""


@cache
def _vocabulary() -> tuple[list[_Row], list[_Row]]:
    """Return both parts: quantity, its form, and what in front of the number makes it another thing."""
    parts: tuple[list[_Row], list[_Row]] = [], []
    for number_of_part, part in enumerate(_VOCABULARY.split("--")):
        for name, _, form in (line.partition("  ") for line in part.strip().splitlines()):
            without = _WITHOUT.get(name.partition("_")[0], "$^") if number_of_part else _SMOOTH
            for unit, written in _UNITS.items() if "UNIT" in form else [("", "")]:
                whole = _PART.sub(lambda found: _PARTS[found[0]], form.replace("UNIT", written))
                expression = re.compile(whole.encode(), re.IGNORECASE | re.VERBOSE)
                row = name + unit, expression, re.compile(without.encode(), re.IGNORECASE)
                parts[number_of_part].append(row)
    return parts


_OF_STEP = late(rb"(?i)step|iter|batch|update|\bdt\b|total|train|took|[\])]|^\W*$")
_NAME_BEFORE = late(rb"[A-Za-z_][\w./ ()\[\]\"'-]{0,39}?[^\w\n]{0,9}$")
_WORDS = {"iteration": "a step", "lm_loss": "a loss", "time": "a time with its unit or a rate"}


@immutable(kw_only=False)
class Nearest:
    """A line, and the expression that may read it."""

    line_number: int  # counted from 1
    text: str
    missing: tuple[str, ...]  # what a training line has and this one does not, in words
    pattern: str | None  # None where the line has no time and no rate, or several that may be meant

    @property
    def words(self) -> str:
        """Quote the line and say what is missing."""
        lacks = f"lacks {' and '.join(self.missing)}" if self.missing else "is of no known dialect"
        return f"nearest comes line {self.line_number}, which {lacks}: `{self.text}`"


def nearest(lines: Iterable[tuple[int, bytes]]) -> Nearest | None:
    """Return the line with the most of a training line, of the numbered `lines`; None where none has two of its fields."""
    shapes: dict[bytes, list[tuple[int, bytes]]] = {}  # lines that differ in numbers alone
    headers: dict[bytes, list[bytes]] = {}
    header: list[bytes] = []
    for line_number, raw in islice(lines, _MAX_LINES):
        for text in pieces(raw[:_MAX_BYTES]):
            if not any(48 <= byte <= 57 for byte in text):
                header = re.sub(rb"[|,;\"]", b" ", text).split() or header
            elif not _NO_TRAINING.search(text):
                shape = b" ".join(_form_of(text).sub(b"#", text).split())
                shapes.setdefault(shape, []).append((line_number, text))
                headers.setdefault(shape, header)
    most = nlargest(_MAX_SHAPES, shapes, key=lambda shape: len(shapes[shape]))
    alike = [_Alike(shapes[shape], headers[shape]) for shape in most if b"#" in shape]
    best = max(alike, key=lambda each: (len(each.kinds), min(len(each.rows), 9)), default=None)
    if best is None or len(best.kinds) < 2:
        return None
    line_number, text = best.rows[best.middle]
    missing = tuple(words for kind, words in _WORDS.items() if kind not in best.kinds)
    shown = " ".join(text.decode(errors="replace").split())[:_MAX_SHOWN]
    return Nearest(line_number, shown, missing, best.pattern() if "time" in best.kinds else None)


class _Alike:
    """Lines that differ in numbers alone, with the quantity of each of their numbers."""

    def __init__(self, rows: Sequence[tuple[int, bytes]], header: Sequence[bytes]) -> None:
        self.rows, self.middle = rows, len(rows) // 2
        self.text = rows[self.middle][1]
        self.form = _form_of(self.text)
        self.places = [found.span() for found in self.form.finditer(self.text)]
        is_table = self.form is _CELL and len(header) == len(self.places)
        self.names: list[str] = []
        self.lefts: list[bytes] = []
        end = 0
        for (begin, stop), after in pairwise([*self.places, (len(self.text), 0)]):
            left, gap = self.text[end:begin], self.text[stop : after[0]]
            own = _OWN_UNIT.match(gap)
            if own and after[1] and not gap[own.end() :].strip(b" \t:="):
                own, gap = None, b""  # the name of the next number
            left = header[len(self.names)] + b" " if is_table else re.split(rb"[,;|]\s", left[-48:])[-1]
            self.lefts.append(left)
            digits = self.text[begin:stop]
            self.names.append(_name_of(left, own[0] if own else b"", b"%b#%b$%b" % (left, digits, gap[:24])))
            end = stop + (own.end() if own else 0)
        if "iteration" not in self.names and (counts := list(filter(self._counts, self._places("")))):
            self.names[counts[0]] = "iteration"

    @property
    def kinds(self) -> set[str]:
        names = set(self.names) - {"tokens", ""}
        return {name if name in _WORDS else "time" for name in names}

    def _values(self, place: int) -> Any:
        texts = [self.form.findall(text)[place] for _, text in self.rows[:_MAX_ROWS]]
        values = [duration_s(text) if b":" in text else number(text) for text in texts]
        return np.array(values, dtype=float)

    def _counts(self, place: int) -> bool:
        """Say whether a number counts the lines, by ones or by any other step."""
        steps = np.diff(self._values(place))
        return len(steps) > 2 and bool(steps[0] > 0 and (steps == steps[0]).all() and steps[0] % 1 == 0)

    def _grows(self, place: int) -> bool:
        values = self._values(place)
        return len(values) > 2 and bool((np.diff(values) > 0).all() and values[-1] > 1.5 * values[0])

    def _places(self, form: str) -> list[int]:
        return [place for place, name in enumerate(self.names) if re.fullmatch(form, name)]

    def pattern(self) -> str | None:
        """Return the expression that may read the lines, None where several times may be meant."""
        wanted = ("iteration", "lm_loss", "tokens", "elapsed_.*", "(tokens|samples)_per.*")
        steps, losses, tokens, times, rates = map(self._places, wanted)
        clocks = [place for place in times if steps and self._grows(place)]
        if rates and clocks:
            rate, clock, step = map(self._values, (rates[0], clocks[0], steps[0]))
            work = rate * clock / step
            if np.ptp(rate) > 0.02 * rate.mean() and np.ptp(work) < 0.02 * work.mean():
                rates = []  # a mean since the start
        of_step = [place for place in times if _OF_STEP.search(self.lefts[place])] or times
        speed = rates or self._places("iterations_per_second") or clocks or of_step
        if not speed or (speed is of_step and len(speed) > 1):
            return None
        groups = {place: self.names[place] for place in (*steps[:1], *losses[:1], speed[0])}
        if speed is clocks:
            groups[speed[0]] = groups[speed[0]].replace("elapsed_", "clock_")
        if not rates:
            groups |= {place: "consumed_tokens" if self._grows(place) else "tokens" for place in tokens[:1]}
        return self._expression(groups)

    def _expression(self, groups: dict[int, str]) -> str:
        """Return an expression without a blank: before each group the name in front of it, or else all between."""
        parts, end = [], 0
        for place, name in sorted(groups.items()):
            begin, stop = self.places[place]
            between = self.text[end:begin]
            named = _NAME_BEFORE.search(between) if re.search(rb"[A-Za-z]", between) else None
            before = ".*?" * bool(end) + _literal(named[0]) if named else "^" * (not end) + _literal(between)
            comma = "," if self.form is _NUMBER else ""
            other = r"[\d:.]+" if name.endswith("_clock") else rf"[\d.{comma}]*\d(?:[eE][-+]?\d+)?"
            form = _DIGITS.get(name, other)
            suffix = r"(?:\s?[kKMG])?" if name.startswith(("tokens_per", "samples_per")) else ""
            parts.append(f"{before}(?P<{name}>{form}{suffix})")
            end = stop
        behind = None if suffix else re.match(rb" ?[(\[]?[A-Za-z][\w/]*", self.text[end:])
        return "".join(parts) + (_literal(behind[0]) if behind else "")


_DIGITS = {"iteration": r"\d+", "lm_loss": r"[-+\w.]+", "tokens": r"\d+", "consumed_tokens": r"\d+"}


def _name_of(left: bytes, own: bytes, context: bytes) -> str:
    """Return the quantity of a number by what is left and right of it and by a rate's unit behind it, "" for none."""
    for rows, text in zip(_vocabulary(), (own or left, context), strict=True):
        for name, form, without in rows:
            if form.search(text):
                return "" if without.search(left) else name
    return ""


def _form_of(text: bytes) -> re.Pattern[bytes]:
    return _NUMBER if _LETTERS.search(text) else _CELL


def _literal(text: bytes) -> str:
    """Return the expression of what is between two numbers."""
    parts = re.split(r"(\s+|\d(?:[\d.,:]*\d)?)", text.decode(errors="replace"))
    return "".join(
        r"\s*" if part.isspace() else r"[\d.,:eE+-]+?(?![\d.])" if part[:1].isdigit() else re.escape(part)
        for part in parts
    )
