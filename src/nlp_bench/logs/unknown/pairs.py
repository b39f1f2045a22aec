"""Names, numbers and units out of a line that nobody has described.

A line is split at its numbers; what stands between two of them is the unit of the one and the name of the other. Lines of
one form have the same texts between their numbers, so the careful look at them is needed once.
"""

import math
import re
from datetime import date
from typing import NamedTuple

from nlp_bench.logs.unknown.meaning import measured, unit_of, words_of
from nlp_bench.logs.unknown.words import DEVICE, GLUED, ITERATIONS, SCALES, TIME_UNITS

MAX_BYTES = 8192
"""What is looked at of a line."""
MAX_NUMBERS = 64
"""A record has fewer; a line with more is a list of settings or a table of something else."""
# A digit behind a letter, a point or a hyphen belongs to a name, a version or a date.
NUMBER = re.compile(
    rb"(?<![A-Za-z0-9_.+-])([-+]?(?:(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?"
    rb"|(?:nan|NaN|NAN|inf|Inf)(?=\s*(?:[,|;)}\]'\"]|$|\s\s))"
    # Before one blank it is a value only behind the name of a loss: `number of nan iterations: 0`.
    rb"|(?:(?<=(?:oss|orm)[ =:])|(?<=(?:oss|orm)[=:] )|(?<=(?:oss|orm) [=:] ))(?:nan|NaN|NAN|inf|Inf)(?=\s)))"
)
_GROUPED = re.compile(rb"(?<![\w.,'])\d{1,3}(?:(?:_|'|\xc2\xa0|\xe2\x80\xaf)\d{3}){1,6}(?![\w'])")
_GROUPS = re.compile(rb"[^\d]+")
_TORN = re.compile(rb"(?<![\w.,/:-])\d{1,3}(?: \d{3}){1,4}(?![\w.,/:%-])")
_NUM_DEVICES = re.compile(
    rb"[(\[](?:on )?(\d{1,6}) ?x? ?(?:GPUs?|gpus?|[Dd]evices|[Rr]anks|[Aa]ccelerators|TPUs?|NPUs?|[Cc]hips)[)\]]"
)
_DATED = re.compile(
    rb"(?<!\d)(?:(\d{4})[-/.](\d\d)[-/.](\d\d)[T ,_-]?\s?|(\d{4})(\d\d)(\d\d) |[IWEF]()(\d\d)(\d\d) |()(\d\d)/(\d\d)(?:/\d{2,4})? )"
    rb"(\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,6}))?(?:Z|[+-]\d\d:?\d\d)?"
)
_UNDATED = re.compile(rb"^[\[(]?()()()()()()()()()()()()(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?![<:\d])")
_GLUED_DATE = re.compile(rb"[\d.,]+\d{4}-\d\d-\d\d[T ]\d\d:\d\d:")
_HEAD = 96  # where a logger puts the time
_CUT = re.compile(r"""[,;|{}\[\]"'\t:=]| {2,}| - """)
_BREAK = re.compile(r"""[,;|{}\[\]"'\t>]| {2,}| - |\)\s|·|→|•|(?:^|\s)--(?=[A-Za-z])""")
_SCALE = re.compile(r"([kKMGBT])(?![A-Za-z])| ?([kKM]) ?(?=[Tt]ok)")
_BRACKET = re.compile(r"\[([A-Za-z/ _%]{1,32})\](\s*[:=])")
_CALL = re.compile(r"(?:np\.)?(?:float|int)\d*\($|tensor\($|Array\($")
_NOTHING = re.compile(r"[^,;|{}]*[:=]\s*['\"]?(?:n/a|none|null|nan|-+)['\"]?\s*$", re.IGNORECASE)
_INNER_UNIT = re.compile(r" ?[(\[]([A-Za-z/ _.]{1,24})[)\]](?!\s?[:=])")
_BRACKETED = re.compile(r"\([^()]{0,40}\)")
_NAME_GOES_ON = re.compile(r"[ _-]?[A-Za-z][\w /-]{0,40}(?:[:=]|$)")
_TOTAL = " (total)"
_OPENERS = " \t:=.([{\"'|<>#~@"
_UNIT_WORDS = (["tok"], ["sample"], ["devs"], ["%"], ["/", "dev"], ["node"])
_UNIT_PARTS = DEVICE | ITERATIONS | frozenset(TIME_UNITS) | GLUED.keys() | {"/", "tok", "sample", "p", "node"}


class Spot(NamedTuple):
    """One number of a line and the words around it."""

    at: int
    """Which number of the line."""
    name: str
    """The words in front of it, "" where there are none."""
    unit: str
    """The words behind it that are a unit, "" where there are none."""
    scale: float
    """Factor of a letter behind it (`4.71K`)."""
    joint: str
    """What stands between it and the number before, where that is no word: `/`, `(`, `:`, `,`."""
    opener: str
    """What stands between its name and it: `: `, `=`, ` [`."""
    behind: str
    """What follows its unit, up to the next number."""


class Spots(NamedTuple):
    """A line taken apart."""

    spots: list[Spot]
    """Its numbers in order."""
    loose: list[str]
    """Texts that are neither name nor unit: the head, words between bars, values that are words."""


def tidy(text: bytes) -> tuple[bytes, int]:
    """Return a line whose numbers are whole (`12'345` is 12345), and the devices that stand in brackets, 0 where none do.

    What may be one number or two (`12 345`) is taken out, and so is a number into whose digits another line's date was written.
    """
    devices = 0
    if b"_" in text or b"'" in text or b"\xa0" in text or b"\xaf" in text:
        text = _GROUPED.sub(lambda found: _GROUPS.sub(b"", found[0]), text)
    found = _NUM_DEVICES.search(text) if b"(" in text or b"[" in text else None
    if found:  # `tokens/s (8 GPUs)=40000` is of all of them
        devices = int(found[1])
        text = text[: found.start()] + _TOTAL.strip().encode() + text[found.end() :]
    if b"-" in text:
        text = _GLUED_DATE.sub(b"torn", text)
    return _TORN.sub(b"torn", text), devices


def stamp_of(text: bytes) -> tuple[float, bytes]:
    """Return the time at which the line was written in seconds (NaN where it does not say), and the line without dates."""
    found = (_DATED.search(text, 0, _HEAD) or _UNDATED.match(text)) if b":" in text else None
    return (_seconds(found), text[: found.start()] + text[found.end() :]) if found else (math.nan, text)


def _seconds(found: re.Match[bytes]) -> float:
    parts = found.groups()
    year, month, day = next((parts[at : at + 3] for at in (0, 3, 6, 9) if parts[at + 1]), (b"", b"", b""))
    hour, minute, second, fraction = parts[12:]
    try:
        days = date(int(year or 2000), int(month or 1), int(day or 1)).toordinal() if month else 0
    except ValueError:
        days = 0
    return days * 86400.0 + int(hour) * 3600 + int(minute) * 60 + int(second) + float(b"0." + (fraction or b"0"))


def spots_of(texts: list[str]) -> Spots:
    """Return what the texts around the numbers of a line say; there is one text more than numbers."""
    spots: list[Spot] = []
    loose: list[str] = []
    rest = texts[0]
    for index in range(len(texts) - 1):
        name, joint, opener, others = _name_of(rest)
        loose += others
        unit, scale, behind = _unit_of(texts[index + 1], name, is_last=index == len(texts) - 2)
        spots.append(Spot(index, name, unit, scale, joint, opener, behind))
        rest = behind
    loose += _BREAK.split(rest)
    return Spots(spots, [text.strip() for text in loose if text.strip() and not _NOTHING.match(text)])


def _name_of(text: str) -> tuple[str, str, str, list[str]]:
    """Return name, joint, opener and the loose texts of what stands in front of a number."""
    text = _CALL.sub("", _BRACKET.sub(r"(\1)\2", text))
    body = text.rstrip(_OPENERS)
    opener = text[len(body) :]
    if not any(c.isalpha() for c in body):
        return "", text.strip(), opener, []
    *others, name = _BREAK.split(body)
    if not any(c.isalpha() for c in name):
        return "", name.strip() + opener.strip(), opener, others
    # `INFO:root:step: 5`: what stands before the last sign of assignment is no part of the name.
    for sign in ":=":
        before, found, after = name.rpartition(sign)
        if found:
            others.append(before)
            name = after
    return name.strip(), "", opener, others


def _unit_of(text: str, name: str, *, is_last: bool) -> tuple[str, float, str]:
    """Return unit, factor and what follows of the text behind a number called `name`."""
    scale, begin = 1.0, 0
    apart = _unit_apart(text, name)
    if apart:
        return apart[0], scale, apart[1]
    found = _SCALE.match(text)
    if found:
        scale, begin = SCALES[found[1] or found[2]], found.end()
    # The k of `3.1 ktok/s` belongs to the unit, or to the next name.
    nothing = ("", 1.0, text) if found and found[2] else ("", scale, text[begin:])
    cut = _CUT.search(text, begin + 1 if text[begin : begin + 1] == " " else begin)
    end = cut.start() if cut else len(text)
    words = words_of(text[begin:end])
    if not words or words[0].start > 1:
        return nothing
    for size in range(min(len(words), 7), 0, -1):
        if _is_unit(unit_of(text[begin : begin + words[size - 1].end])):
            stop = begin + words[size - 1].end
            behind = text[stop:]
            if behind[:1].isalnum() or behind[:1] == "_":
                continue
            if _is_of_next(text, words[0].start + begin, stop, name, is_last=is_last):
                return nothing
            if behind.startswith(_TOTAL):
                return text[begin:stop] + _TOTAL, scale, behind[len(_TOTAL) :]
            return text[begin:stop], scale, behind
    return nothing


def _unit_apart(text: str, name: str) -> tuple[str, str] | None:
    """Return a unit in brackets behind the number of a name that lacks it, and what follows; None where there is none."""
    inner = _INNER_UNIT.match(text)
    if inner and _wants_unit(name) and _is_unit(unit_of(inner[1])):
        return inner[1], text[inner.end() :]
    is_total = text.startswith(_TOTAL) and _is_rate(name)
    return ("total", text[len(_TOTAL) :]) if is_total else None


def _is_of_next(text: str, start: int, stop: int, name: str, *, is_last: bool) -> bool:
    """Say whether the unit behind a number called `name`, from `start` to `stop`, is (the begin of) the next number's name."""
    behind = text[stop:]
    bare = _BRACKETED.sub("", behind)
    # `512 ms: 3` names the 3, `512ms: ` does not.
    if text[:1] == " " and start > 0 and bare.lstrip(" )\"'")[:1] in {":", "="}:
        return True
    if text[:1] == " " and unit_of(text[start:stop]) == ["/", "dev"] and _NAME_GOES_ON.match(behind):
        return not _is_rate(name)  # `4.98 per-GPU throughput: 3000`
    return not is_last and bool(name) and not bare.strip(" \t)") and not _wants_unit(name)


def _is_unit(words: list[str]) -> bool:
    if not words:
        return False
    if words in _UNIT_WORDS:
        return True
    if "/" in (words[0], words[-1]) or not _UNIT_PARTS.issuperset(words):
        return False
    found = measured(words)
    return found is not None and (found.kind != "step_time" or "/" in words)


def _is_rate(name: str) -> bool:
    found = measured([word.text for word in words_of(name)])
    return found is not None and found.kind.endswith("rate")


def _wants_unit(name: str) -> bool:
    found = measured([word.text for word in words_of(name)])
    return found is not None and (found.kind == "rate" or not found.has_unit)
