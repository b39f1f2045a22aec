"""The line of an unread log that comes nearest to a training line, and the `--pattern` that may read it."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import pieces
from nlp_bench.logs.pattern import late
from nlp_bench.logs.quantity import duration_s, number, quantity_of

_MAX_BYTES, _MAX_LINES, _MAX_SHOWN = 1000, 20_000, 160
_NUMBER = late(
    rb"(?<![\w.])(?:\d{1,4}:\d\d(?::\d\d)?(?:\.\d+)?|[-+]?\d[\d,]*(?<!,)(?:\.\d+)?(?:[eE][-+]?\d+)?)(?!\d|:\d)"
)
_DEVICE = rb"(?:gpu|device|dev|npu|tpu|chip|rank|card|worker)"
_WANTED = tuple(
    (name, re.compile(form, re.IGNORECASE))
    for name, form in (
        ("tokens_per_second_per_device", rb"to?ke?ns?[ _]?(?:/|per|p)[ _]?" + _DEVICE + rb"[ _]?(?:/|per|p)[ _]?s"),
        (
            "tokens_per_second_per_device",
            rb"(?:tok(?:en)?s?[ _]?(?:/|per|p)[ _]?s\w*|\btps)[ _]?(?:/|per)[ _]?" + _DEVICE,
        ),
        ("tokens_per_second", rb"tok(?:en)?s?[ _]?(?:/|per|p)[ _]?s(?:ec(?:ond)?s?)?(?![a-z])|\b(?:tps|wps)\b"),
        (
            "samples_per_second",
            rb"(?:sample|seq(?:uence)?|example|sent(?:ence)?)s?[ _]?(?:/|per|p)[ _]?s(?:ec(?:ond)?)?(?![a-z])",
        ),
        ("iterations_per_second", rb"\b(?:it|iter(?:ation)?|step|batch|update)(?:e?s)?[ _]?(?:/|per)[ _]?s"),
        ("elapsed_s", rb"\bs(?:ec(?:ond)?s?)?[ _]?(?:/|per)[ _]?(?:it|step|batch|update)"),
        ("elapsed_ms", rb"\bms(?:ec)?[ _]?(?:/|per)[ _]?(?:it|step|batch|update)"),
    )
)
"""Rates by the words on either side of their number."""
_OWN_UNIT = late(rb" ?[kKMG]?[ (\[]{0,2}[A-Za-z]\w*[ ]?(?:/|per)[ ]?[A-Za-z]\w*(?:[ ]?(?:/|per)[ ]?\w+)?\b(?!=|:[ \d])")
_TIME_NAME = late(
    rb"time|elapsed|\bdt\b|\bt\b|duration|latency|took|wall|clock|runtime|\bsec(?:ond)?s\b|\bms\b|\bin\W{0,3}$",
    re.IGNORECASE,
)
_OF_STEP = late(rb"step|iter|batch|update|\bdt\b|total|train|took", re.IGNORECASE)
_UNIT = late(rb" ?[(\[]?(ms(?:ec)?|us(?:ec)?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)(?![\w/=])", re.IGNORECASE)
_UNIT_IN_NAME = late(
    rb"[_ (\[/](ms(?:ec)?|us(?:ec)?|s|secs?|seconds?|mins?|minutes?|h|hours?)[^\w\n]{0,9}$", re.IGNORECASE
)
_UNITS = {b"ms": "ms", b"us": "us", b"s": "s", b"m": "min", b"h": "h"}
_STEP = late(
    rb"(?<![a-z])(?:step|iter(?:ation)?|update|batch|it|progress)(?:s|_num|_idx)?\b[\"']?[^\w\n]{0,9}$", re.IGNORECASE
)
_STEP_UNIT = late(rb"(?:st|nd|rd|th) (?:step|iter(?:ation)?|update|batch)s?\b", re.IGNORECASE)
_TOTAL_BEHIND = late(rb"[\])]? ?(?:/|of) ?[\[(]?\d")
_LOSS = late(rb"(?:loss|nll|ppl|perplexity|cross.?entropy|\bce\b)(?: is| of)?[^\w\n]{0,9}$", re.IGNORECASE)
_TOKENS = late(rb"(?:tok(?:en)?s)(?:[ _](?:seen|so far|total|consumed|processed))?[\"']?[^\w\n]{0,9}$", re.IGNORECASE)
_NO_TRAINING = late(rb"(?<![a-z])(?:e?val(?:id\w*|uat\w*)?|test|infer\w*|generat\w*)(?![a-z])", re.IGNORECASE)
_NO_TIME = late(
    rb"eta\b|remain|left|avg|average|mean|ema\b|smooth|data|load|forward|backward|comm|optim|lr|mem", re.IGNORECASE
)
_NAME_BEHIND = late(rb"[A-Za-z_][\w./ ()\[\]\"'-]{0,39}?[^\w\n]{0,9}$")
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


@immutable(kw_only=False)
class _Number:
    """One number of a line with what stands on either side of it."""

    start: int
    end: int
    name: str  # quantity, "" where none is known
    value: float
    is_of_step: bool  # whether a time has the name of a step's


def nearest(lines: Iterable[tuple[int, bytes]]) -> Nearest | None:
    """Return the line with the most of a training line, of the numbered `lines`; None where none has two of its fields."""
    groups: dict[tuple[str, ...], list[tuple[int, bytes, list[_Number]]]] = {}
    header: list[bytes] = []
    for count, (line_number, raw) in enumerate(lines):
        if count >= _MAX_LINES:
            break
        for text in pieces(raw[:_MAX_BYTES]):
            if not any(48 <= byte <= 57 for byte in text):
                header = text.replace(b"|", b" ").replace(b",", b" ").split() or header
                continue
            if _NO_TRAINING.search(text):
                continue
            numbers = _numbers(text, header)
            key = tuple(dict.fromkeys(one.name for one in numbers if one.name))
            if len(_kinds(key)) > 1:
                groups.setdefault(key, []).append((line_number, text, numbers))
    if not groups:
        return None
    key = max(groups, key=lambda names: (len(_kinds(names)), min(len(groups[names]), 9)))
    rows = groups[key]
    line_number, text, numbers = rows[len(rows) // 2]
    missing = tuple(words for kind, words in _WORDS.items() if kind not in _kinds(key))
    chosen = _chosen([row[2] for row in rows], numbers) if "time" in _kinds(key) else []
    shown = " ".join(text.decode(errors="replace").split())[:_MAX_SHOWN]
    return Nearest(line_number, shown, missing, _pattern(text, chosen) if chosen else None)


def _kinds(names: Iterable[str]) -> set[str]:
    return {name if name in {"iteration", "lm_loss"} else "time" for name in names if name != "tokens"}


def _numbers(text: bytes, header: Sequence[bytes]) -> list[_Number]:
    found = list(_NUMBER.finditer(text))
    is_table = len(header) == len(found) and not re.search(rb"[A-Za-z]{2}", text)
    numbers = []
    for at, each in enumerate(found):
        before = found[at - 1].end() if at else 0
        if own := _OWN_UNIT.match(text, before) if at else None:
            before = own.end()
        behind = found[at + 1].start() if at + 1 < len(found) else len(text)
        left = header[at] + b" " if is_table else text[before : each.start()]
        right = b"" if is_table else text[each.end() : behind]
        name, is_of_step = _name_of(left[-48:], right[:24], each[0], is_first=not at and not left.strip(b" [(#|\t"))
        value = duration_s(each[0]) if b":" in each[0] else number(each[0])
        if name and value is not None:
            numbers.append(_Number(each.start(), each.end(), name, value, is_of_step))
    return numbers


def _name_of(left: bytes, right: bytes, text: bytes, *, is_first: bool) -> tuple[str, bool]:
    """Return the quantity of a number by what stands left and right of it, "" for none, and whether a time is a step's."""
    near = re.split(rb"[,;|]\s", left)[-1]
    own_unit = _OWN_UNIT.match(right)
    for name, form in _WANTED:
        if (own_unit and form.search(own_unit[0])) or (not own_unit and form.search(near)):
            return ("" if re.search(rb"(?i)avg|average|mean|ema\b|smooth", near) else name), True
    is_whole = text.isdigit()
    is_bare = is_first and (_TOTAL_BEHIND.match(right) or b"#" in left or right[:1] == b"]" or right[:2] == b" |")
    if is_whole and (_STEP.search(near) or _STEP_UNIT.match(right) or is_bare):
        return "iteration", False
    if _LOSS.search(near):
        return "lm_loss", False
    unit = _UNIT.match(right) or _UNIT_IN_NAME.search(near)
    if (unit or b":" in text) and not _NO_TIME.search(near) and (_TIME_NAME.search(near) or (unit and right)):
        short = unit[1].lower() if unit else b""
        of = next((name for begin, name in _UNITS.items() if short.startswith(begin)), "s")
        return ("elapsed_clock" if b":" in text else f"elapsed_{of}"), _OF_STEP.search(near) is not None
    if is_whole and _TOKENS.search(near):
        return "tokens", False
    return "", False


def _chosen(rows: Sequence[list[_Number]], numbers: Sequence[_Number]) -> list[tuple[_Number, str]]:
    """Return the numbers that the expression takes, with the names of their groups; none where several times may be meant."""
    known = {name: next(one for one in numbers if one.name == name) for name in dict.fromkeys(n.name for n in numbers)}

    def column(name: str) -> np.ndarray:
        return np.array([next((one.value for one in row if one.name == name), np.nan) for row in rows])

    def grows(name: str) -> bool:
        values = column(name)
        return len(values) > 2 and bool((np.diff(values) > 0).all()) and bool(values[-1] > 1.5 * values[0])

    taken = [(known[name], name) for name in ("iteration", "lm_loss") if name in known]
    times = [one for one in numbers if one.name.startswith("elapsed_")]
    clocks = [one for one in times if grows(one.name)]
    rates = [name for name in known if quantity_of(name)[0].startswith(("tokens_per", "samples_per"))]
    if rates and clocks and "iteration" in known:
        clock, step = column(clocks[0].name), column("iteration")
        rate = column(rates[0])
        work = rate * clock / step
        if len(rows) > 2 and np.ptp(rate) > 0.02 * rate.mean() and np.ptp(work) < 0.02 * work.mean():
            rates = []  # a mean since the start
    if rates:
        return sorted([*taken, (known[rates[0]], rates[0])], key=lambda one: one[0].start)
    if "iterations_per_second" in known:
        timed = [(known["iterations_per_second"], "iterations_per_second")]
    elif clocks and ("iteration" in known):
        timed = [(clocks[0], clocks[0].name.replace("elapsed_", "clock_"))]
    else:
        single = [one for one in times if one.is_of_step] or times
        timed = [(single[0], single[0].name)] if len({one.name for one in single}) == 1 and len(single) == 1 else []
    if timed and "tokens" in known:
        timed.append((known["tokens"], "consumed_tokens" if grows("tokens") else "tokens"))
    return sorted([*taken, *timed], key=lambda one: one[0].start) if timed else []


_FORMS = {"iteration": r"\d+", "lm_loss": r"[-+\w.]+", "tokens": r"\d+", "consumed_tokens": r"\d+"}


def _pattern(text: bytes, chosen: Sequence[tuple[_Number, str]]) -> str:
    """Return the expression: before each group the name that stands there, or else all between."""
    parts, end = [], 0
    for one, name in chosen:
        between = text[end : one.start]
        named = _NAME_BEHIND.search(between) if re.search(rb"[A-Za-z]", between) else None
        before = ".*?" * bool(end) + _literal(named[0]) if named else "^" * (not end) + _literal(between)
        form = _FORMS.get(name, r"[\d:.]+" if name.endswith("_clock") else r"[\d.,]*\d(?:[eE][-+]?\d+)?")
        if "per_second" in name and not name.startswith("iter"):
            form += "(?: ?[kKMG])?"
        parts.append(f"{before}(?P<{name}>{form})")
        end = one.end
    behind = re.match(rb" ?[(\[]?[A-Za-z][\w/]*", text[end:])
    return "".join(parts) + (_literal(behind[0]) if behind and "per_second" not in chosen[-1][1] else "")


def _literal(text: bytes) -> str:
    """Return the expression of what stands between two numbers."""
    pieces_of = re.split(r"(\s+|\d[\d.,:]*)", text.decode(errors="replace"))
    return "".join(
        r"\s*" if piece.isspace() else r"[\d.,:eE+-]+" if piece[:1].isdigit() else re.escape(piece)
        for piece in pieces_of
    )
