r"""Dialects as data: a record is what an expression matches, and the names of its groups are quantities.

Expressions are bytes in the syntax of `re`, compiled on first use. In them `<name>` is short for a group of that name around the usual
form of its number: `<iteration>` is `(?P<iteration>\d{1,18})`. Names are those of `record.ROW`, also with another unit at the end
(`elapsed_ms`), `elapsed_clock` for a clock text such as `1:03:17`, and in expressions of facts `quantity.FACTS`. Groups of any other name
are for the dialect's own code.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, AnyStr, NamedTuple, cast

import numpy as np

from nlp_bench.errors import UsageError, nearest
from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.quantity import FACTS, OTHER_NAMES, RATES, UNITS, Counted, duration_s, in_unit, number, quantity_of
from nlp_bench.logs.record import ROW, Column
from nlp_bench.logs.scan import Line, slim

Match = re.Match[bytes]
Values = dict[str, float]
QUANTITIES = dict.fromkeys((*ROW, *UNITS, *OTHER_NAMES))  # names that a group of a record may have
_TIMED = frozenset((*RATES, "clock_s"))
_SIGNED = {"lm_loss", "learning_rate", "grad_norm"}
_REAL = re.compile(r"per_second|elapsed|clock|tflops")
_PLACE = re.compile(rb"(?<!\?P)<([a-z][a-z_]*)>")


def _usual(found: Match) -> bytes:
    name = found[1].decode()
    form = rb"[-+\d.eE]{1,40}|nan|inf" if name in _SIGNED else rb"[\d.]{1,30}" if _REAL.search(name) else rb"\d{1,18}"
    return b"(?P<%b>%b)" % (found[1], form)


class Form:
    """An expression that is compiled on first use: a log needs a few of a hundred, and compiling all would slow start-up."""

    def __init__(self, expression: bytes | str | re.Pattern[bytes]) -> None:
        self._expression = expression

    def __getattr__(self, name: str) -> Any:
        # Kept as an attribute, so that the next access does not come here.
        value = self.__dict__[name] = getattr(self._compiled, name)
        return value

    @cached_property
    def _compiled(self) -> Any:
        text = self._expression
        return re.compile(_PLACE.sub(_usual, text) if isinstance(text, bytes) else text)

    @cached_property
    def _quantities(self) -> tuple[str, ...]:
        return tuple(name for name in self._compiled.groupindex if name in QUANTITIES)

    def quantities(self, found: Match, *, cut_at: int = -1) -> tuple[Values, bool]:
        """Return the groups of a match that name quantities, in their units, and whether each that matched is a number.

        A group that ends at `cut_at` does not count as a number: it may be cut short.
        """
        values: Values = {}
        texts = [(name, text) for name in self._quantities if (text := found[name]) is not None]
        for name, text in texts:
            value = duration_s(text) if name.endswith("_clock") else number(text)
            if value is not None and found.end(name) != cut_at:
                quantity, values[quantity] = in_unit(name, value)
        return values, len(values) == len(texts)


Expression = bytes | re.Pattern[bytes] | Form


@lru_cache(maxsize=1024)
def form_of(expression: Expression) -> Form:
    """Return the expression as a Form, in which each `<name>` is expanded."""
    return expression if isinstance(expression, Form) else Form(expression)


def late(expression: AnyStr) -> re.Pattern[AnyStr]:
    """Return an expression that is used like a compiled one and compiled on first use, see `Form`."""
    return cast("re.Pattern[AnyStr]", Form(expression))


def is_cut(line: Line, text: bytes, end: int) -> bool:
    """Say whether what ends at `text[end]` may be cut short: it ends a line without a line feed."""
    return not line.is_ended and end >= len(text)


def pairs_in(form: re.Pattern[bytes], text: bytes, line: Line, may_be_nan: Collection[bytes]) -> dict[bytes, float]:
    """Return the number (group 2) of each key (group 1) that `form` finds in `text`, the first of each.

    Numbers that may be cut short are left out, and those that are not finite, but for the keys in `may_be_nan`.
    """
    pairs: dict[bytes, float] = {}
    for found in form.finditer(text):
        value = number(found[2])
        if value is None or is_cut(line, text, found.end(2)):
            continue
        if math.isfinite(value) or found[1] in may_be_nan:
            pairs.setdefault(found[1], value)
    return pairs


def take_facts(facts: Sequence[Expression], text: bytes, line: Line, findings: Findings) -> None:
    """Report to `findings` all that the expressions find in `text`; the group `device` is text, the others are numbers.

    Groups `<fact>__<any name>` are factors: the fact is their product, a whole number.
    """
    for found in (found for expression in facts for found in form_of(expression).finditer(text)):
        products: dict[str, float] = {}
        for group, value in found.groupdict().items():
            name = group.partition("__")[0]
            if name == "device" and value:
                findings.fact(name, value.decode(errors="replace").strip(), line)
            elif value and (count := number(value)) is not None:
                products[name] = products.get(name, 1.0) * count
        for name, count in products.items():
            findings.fact(name, count if name in found.re.groupindex else int(count), line)


@immutable
class Pattern:
    """A dialect with one record per line, as data; an expression may also be compiled already."""

    record: Expression | tuple[Expression, ...]
    """Each match is a record. With a group `epoch` (counted from 1) iterations are numbered within each epoch."""
    otherwise: Expression | None = None  # less detailed records, read as long as there is none of the others
    fields: tuple[Expression, ...] = ()
    """More quantities, each optional, searched for in the record's group `fields`, or else after the record."""
    pairs: tuple[Expression, Mapping[bytes, str]] | None = None
    """Quantities after the record in any order: groups `key` and `value`, and the quantity of each key."""
    facts: tuple[Expression, ...] = ()  # each match states the facts of its group names, see `take_facts`
    start: Expression | None = None  # a line that a program prints once when it starts
    skip: Expression | None = None  # texts that look like a record and are none, such as those of an evaluation
    torn: Expression | None = None  # texts in which a record is cut or spliced so that none of its numbers is reliable
    seen: tuple[Expression, ...] = ()  # each must have matched before a record counts
    is_numbered: bool = True  # false: the log does not number its records; those of each process are counted from 1
    is_redrawn: bool = False
    """Skip a record with the same iteration as the previous one of its process: a bar that is drawn again."""
    reads_each_line: bool = True  # see `dialect.Parser`
    remark: str = ""  # sentence on the number for its reader
    refusal: str = ""  # why no log of this program gives a number
    refused: tuple[tuple[Expression, ...], str] | None = None
    """Expressions, and the reason to refuse a log in which all of them match and no record is found."""
    reading: "type[PatternParser] | None" = None  # a subclass, where the format needs code

    __eq__, __hash__ = object.__eq__, object.__hash__  # its mappings have no hash

    def __call__(self) -> "PatternParser":
        """Return the parser of one log."""
        return (self.reading or PatternParser)(self)


class At(NamedTuple):
    """The match of a record, its line and the findings; `found.string` is the text."""

    found: Match
    line: Line
    findings: Findings


class PatternParser(Parser):
    """Reads one log by a `Pattern`. Dialects that need code override `values` or `finish`."""

    def __init__(self, form: Pattern) -> None:
        self.form, self.reads_each_line = form, form.reads_each_line
        self.devices = Counted()
        self._records = tuple(map(form_of, form.record if isinstance(form.record, tuple) else (form.record,)))
        self._facts, self._fields = tuple(map(form_of, form.facts)), tuple(map(form_of, form.fields))
        self._start, self._skip, self._torn, self._otherwise, self._pair = (
            form_of(each) if each else None
            for each in (form.start, form.skip, form.torn, form.otherwise, form.pairs and form.pairs[0])
        )
        self._missing = set(map(form_of, form.seen))
        self._unmet = set(map(form_of, form.refused[0])) if form.refused else set()
        self._counts: dict[bytes, int] = {}
        self._last: dict[bytes, float | None] = {}
        self._has_records = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read the facts and the records of a text."""
        if self._start and findings.num_records and self._start.search(text):
            findings.start(line)
            self._counts.clear()
        take_facts(self._facts, text, line, findings)
        for unseen in (self._unmet, self._missing):
            unseen -= {each for each in unseen if each.search(text)}
        if self._missing or (self._skip and self._skip.search(text)):
            return
        for form in self._records:
            for found in form.finditer(text):
                self._has_records |= self._record(form, found, line, findings)
        if self._otherwise and not self._has_records:
            for found in self._otherwise.finditer(text):
                self._record(self._otherwise, found, line, findings)

    def _record(self, expression: Form, found: Match, line: Line, findings: Findings) -> bool:
        form, text = self.form, found.string
        label = label_of(text[: found.start()])
        if self._torn and self._torn.search(text):
            findings.record(line, {}, label=label, is_whole=False)
            return False
        values, is_whole = expression.quantities(found, cut_at=-1 if line.is_ended else len(text))
        if "epoch" in expression.groupindex:
            _join_epochs(values, found)
        is_whole &= self._more(values, found, line)
        if form.pairs and _TIMED.isdisjoint(values):
            return False
        if form.is_redrawn:
            before, self._last[label] = self._last.get(label), values.get("iteration")
            if before == self._last[label]:
                return False
        if not form.is_numbered:
            self._counts[label] = self._counts.get(label, 0) + 1
            values["iteration"] = float(self._counts[label])
        changed = self.values(values, At(found, line, findings))
        if changed is not None:
            findings.record(line, changed, label=label, is_whole=is_whole)
        return changed is not None

    def _more(self, values: Values, found: Match, line: Line) -> bool:
        """Add the quantities of fields and pairs, and say whether none of them was cut."""
        form, text, is_whole = self.form, found.string, True
        if self._fields:
            rest = found["fields"] if "fields" in found.re.groupindex else text[found.end() :]
            for each in self._fields:
                if another := each.search(rest):
                    values |= each.quantities(another)[0] | values
        if self._pair and form.pairs:
            names = form.pairs[1]
            for pair in self._pair.finditer(text, found.end()):
                name = names.get(pair["key"])
                if name is None or name in values:
                    continue
                value = number(pair["value"])
                if value is None or is_cut(line, text, pair.end()):
                    is_whole = False
                else:
                    values[name] = value
        return is_whole

    def values(self, values: Values, _at: At) -> Values | None:
        """Return the corrected quantities of a record; None where it is no record of training."""
        return values

    def finish(self, findings: Findings) -> None:
        """Report the number of devices, refusals and remarks."""
        self.devices.report(findings)
        form = self.form
        if form.refused and not self._unmet and not findings.num_records:
            findings.refuse(form.refused[1])
        if findings.num_records and form.refusal:
            findings.refuse(form.refusal)
        if findings.num_records and form.remark:
            findings.remark(form.remark)


def _join_epochs(values: Values, found: Match) -> None:
    """Count iterations through all epochs, where the record has a group `epoch`; a group `epochs` is their number."""
    written = found.groupdict()
    epoch, epochs = written.get("epoch"), written.get("epochs")
    if epoch and "iteration" in values and "total_iterations" in values:
        values["iteration"] += (float(epoch) - 1) * values["total_iterations"]
        values["total_iterations"] *= float(epochs) if epochs else 1.0
        if not epochs:
            del values["total_iterations"]


@dataclass
class Open:
    """A record to which following lines may add."""

    line: Line  # its first line, as `slim` keeps it
    prefix: bytes  # text before it on its line
    values: Values  # quantities so far
    texts: dict[bytes, bytes] = field(default_factory=dict)  # value of each key as it was written
    is_whole: bool = True  # False where a number was cut
    is_over: bool = False  # True after a line of the next record, whose head is lost


@immutable
class Lines:
    """A dialect whose records span several lines, as data: a head, then one line for each quantity.

    Lines of other processes may be between them, so each line joins the last record with the same prefix.
    """

    head: Expression  # first line of a record; with quantities as group names
    pair: Expression  # each further line: groups `key` and `value`
    keys: Mapping[bytes, str]  # quantity of each key; "" for one that is kept as text only. Others are skipped.
    reading: "type[LinesParser] | None" = None  # a subclass that derives more from a record

    __eq__, __hash__ = object.__eq__, object.__hash__  # its mappings have no hash

    def __call__(self) -> "LinesParser":
        """Return the parser of one log."""
        return (self.reading or LinesParser)(self)


class LinesParser(Parser):
    """Reads one log by `Lines`. Dialects that need code override `begin`, `rename` or `derive`."""

    def __init__(self, form: Lines) -> None:
        self.form = form
        self._head, self._pair = form_of(form.head), form_of(form.pair)
        self.devices = Counted()
        self._open: dict[bytes, Open] = {}

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Open a record or add to one."""
        if head := self._head.search(text):
            prefix = text[: head.start()]
            label = label_of(prefix)
            self._close(label, findings)
            values, is_whole = self.begin(head)
            self._open[label] = Open(slim(line), prefix, values, is_whole=is_whole)
        elif pair := self._pair.search(text):
            self._add(text, pair, line)

    def _add(self, text: bytes, pair: Match, line: Line) -> None:
        prefix = text[: pair.start()].strip()
        record = next((r for r in reversed(self._open.values()) if r.prefix.lstrip().startswith(prefix)), None)
        key = self.rename(pair["key"].strip())
        name = self.form.keys.get(key)
        if record is None or name is None or record.is_over:
            return
        written = pair["value"].strip()
        if key in record.texts:
            record.is_over = record.texts[key] != written
            return
        value = number(written)
        # The last number of a line that was never ended may be cut short.
        if value is None or is_cut(line, text, pair.end()):
            record.is_whole = False
            return
        record.texts[key] = written
        if name:
            record.values.setdefault(name, value)

    def _close(self, label: bytes, findings: Findings) -> None:
        record = self._open.pop(label, None)
        if record and (record.texts or not record.is_whole) and self.derive(record):
            findings.record(record.line, record.values, label=label, is_whole=record.is_whole)

    def begin(self, head: Match) -> tuple[Values, bool]:
        """Return the quantities of the head, and whether each that matched is a number."""
        return self._head.quantities(head)

    def rename(self, key: bytes) -> bytes:
        """Return the key under which `keys` lists `key`, where versions of a program differ."""
        return key

    def derive(self, record: Open) -> bool:
        """Add derived quantities to a finished record, and say whether it is a record of training."""
        return bool(record)

    def finish(self, findings: Findings) -> None:
        """Report the records that are still open, and the devices."""
        for label in list(self._open):
            self._close(label, findings)
        self.devices.report(findings)


NAME = "pattern"  # of the dialect of --pattern
_ALSO_CALLED = {"step": "iteration", "steps": "iteration", "tps": "tokens_per_second", "tok_s": "tokens_per_second"}


def pattern_dialect(expressions: Sequence[str]) -> Dialect:
    """Return the dialect of `--pattern`: one expression finds the records, the others find facts, such as sequence_length.

    Raises UsageError for an expression that is not valid, has no named group or an unknown one, and where none or several of them
    have a time or a rate.
    """
    given = [_checked(text) for text in expressions]
    records = [each for each in given if _TIMED & {quantity_of(name)[0] for name in each.groupindex}]
    if len(records) != 1:
        named = ", ".join(repr(each.pattern.decode()) for each in records) or "none has"
        raise UsageError(
            f"pattern: one expression has to name a time or a rate ({', '.join(sorted(_TIMED))}, or elapsed_ms), here: {named}"
        )
    facts = tuple(each for each in given if each is not records[0])
    if wrong := {name for each in facts for name in each.groupindex} - set(FACTS):
        raise UsageError(f"pattern: {min(wrong)} is no fact of a whole log; facts are {', '.join(FACTS)}")
    return Dialect(
        name=NAME,
        title="lines that --pattern describes",
        source="the command line",
        trap="what the person says of a line is believed",
        needles=tuple(b"%d" % digit for digit in range(10)),
        parser=Pattern(record=records[0], facts=facts, reading=_Given),
    )


_WHOLE_NUMBER = re.compile(
    rb"(?P<number>\d+(?:\.\d+)*(?:[eE][-+]?\d+)?(?:[KkMGBT](?![A-Za-z])| [KkMGBT](?=[ /][a-z]))?)"
    rb"(?: ?(?:(?P<us>us(?:ec)?|[\xc2\xce]?[\xb5\xbc]s)|(?P<ms>ms(?:ec)?)|(?P<s>s|secs?|seconds?)|(?P<min>mins?|minutes?)"
    rb"|(?P<h>h|hours?))(?![\w=:]))?"
)
"""A number with its thousands (`70.9k`, `1.2 M tok/s`) and its unit of time; `s=` and `s:` are the next name."""
_IN_A_UNIT = {"elapsed_s", "clock_s", *UNITS}
_NEAR = 40  # letters before a group in which its number may begin
_ANY_NUMBER = re.compile(rb"\d+(?::\d\d)+(?:\.\d+)?|\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?")
_MAX_ROWS, _MIN_ROWS = 1000, 8  # lines in which a mean since the start shows
_SAME = 0.02


class _Given(PatternParser):
    """Lines that a person describes."""

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self._seen: tuple[list[tuple[float, ...]]] = ([],)
        """Of each record its rate, its step, and all numbers of its line; in a tuple, since they are no state to compare."""

    def take(self, line: Line, findings: Findings) -> None:
        """Read a line as it is unwrapped, or else as the person sees it: in an object of JSON."""
        num_records = findings.num_records
        super().take(line, findings)
        if findings.num_records == num_records and line.text.startswith(b"{"):
            self.text(line.text, line, findings)

    def values(self, values: Values, at: At) -> Values | None:
        """Refuse an expression that reads a part of a number (a greedy `.*` before a group leaves it the last digit), or a time in another unit."""
        text = at.found.string
        for name in filter(QUANTITIES.__contains__, at.found.re.groupindex):
            begin, end = at.found.span(name)
            near = _WHOLE_NUMBER.finditer(text, max(begin - _NEAR, 0)) if begin < end else ()
            whole = next((one for one in near if one.end("number") > begin), None)
            if not whole or whole.start() >= end:
                continue
            is_other = name in _IN_A_UNIT and whole.lastgroup not in {"number", name.rpartition("_")[2]}
            if is_other or whole.start() < begin or whole.end("number") > end:
                at.findings.refuse(
                    f"pattern: {name} takes {text[begin:end].decode(errors='replace')} of {whole[0].decode(errors='replace')} in line "
                    f"{at.line.number}; let the group take all of the number (.*? in place of .* before it), and the unit stand behind "
                    "it, each unit with a group of its own: (?:(?P<elapsed_ms>[\\d.]+) ms|(?P<elapsed_s>[\\d.]+) s)"
                )
                return None
        if len(self._seen[0]) < _MAX_ROWS:
            texts = _ANY_NUMBER.findall(text)
            numbers = [duration_s(each) if b":" in each else number(each) for each in texts]
            rate = next(
                (1 / value if name == "elapsed_s" else value for name in RATES if (value := values.get(name))), 0.0
            )
            others = (math.nan if each is None else each for each in numbers)
            self._seen[0].append((rate, values.get("iteration", 0.0), *others))
        return values

    def finish(self, findings: Findings) -> None:
        """Refuse a mean since the start: with a number of its line, a clock, it is as constant per step as it varies by itself."""
        super().finish(findings)
        rows = [row for row in self._seen[0] if len(row) == len(self._seen[0][0]) and row[0] > 0 < row[1]]
        rate, step, *others = np.array(rows or [(0.0, 1.0)]).T
        is_same = [_spread(rate * other / step) < _SAME for other in others]
        if len(rows) >= _MIN_ROWS and _spread(rate) > _SAME and any(is_same):
            findings.refuse(
                f"pattern: the rate is the mean since the start, as the number {is_same.index(True) + 1} of its line, a clock, shows: take "
                "that as clock_s, clock_min or clock_clock in place of the rate, with the sizes that give the tokens of a step"
            )


def _spread(values: Column) -> float:
    """Return how far the quartiles of the values are apart, as a share of the median."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float((high - low) / middle) if middle > 0 else math.inf


def _checked(text: str) -> re.Pattern[bytes]:
    try:
        expression = re.compile(text.encode())
    except (re.error, UnicodeEncodeError, AttributeError) as error:
        raise UsageError(f"pattern: {text!r:.200} is no regular expression of Python: {error}") from error
    if not expression.groupindex:
        raise UsageError(
            f"pattern: {text!r:.200} has no named group; an example: --pattern 'step (?P<iteration>\\d+) .* (?P<elapsed_ms>[\\d.]+) ms'"
        )
    names: dict[str, Any] = dict.fromkeys((*QUANTITIES, *FACTS))
    for name in expression.groupindex.keys() - names:
        meant = nearest(_ALSO_CALLED.get(name, name), list(names), listed=False)
        raise UsageError(f"pattern: group {name} is no quantity{meant} (known: {', '.join(names)})")
    return expression
