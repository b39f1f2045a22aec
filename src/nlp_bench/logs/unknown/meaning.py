"""What a name and a unit together mean: one number of a line nobody has described becomes a quantity, or nothing."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from nlp_bench.logs.unknown import words as w

_WORD = re.compile(r"(?:[GTNHX]PU|[TGP]?FLOP)[sS]?(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|/|%|µs")
_INNER = re.compile(r"\(([^()]+)\)\s*$")
_MAX_WORDS = 12
_WHERE = {"/ dev": "device", "total": "total"}
_TIMES = frozenset({"step_time", "time", "clock"})
_AMOUNTS = frozenset({"sample", "devs", "dev", "node", "nodes", "step", "it"})
_FOREIGN_NAME = w.FOREIGN | w.PARTS | w.EXTREMES


class Word(NamedTuple):
    """One word of a text, in its canonical form."""

    text: str
    """Canonical word, or the word itself in lower case."""
    start: int
    """Where it begins in the text."""
    end: int
    """Where it ends."""


@dataclass(frozen=True)
class Meaning:
    """What one number is."""

    kind: str
    """tokens_rate, samples_rate, steps_rate, rate, step_time, time, clock, counter, anonymous, seen_tokens, step_tokens, ..."""
    place: str = ""
    """"device", "total", "node", or "" where the log does not say."""
    factor: float = 1.0
    """The value is the number times this."""
    per: str = ""
    """What an iteration is called: step, it, batch, bar; "short" for a short name of a rate."""
    is_average: bool = False
    """Whether it is a mean over more than the step."""
    is_variant: bool = False
    """Whether the name says which of the tokens are counted."""
    by: str = "name"
    """What says so: name, unit, or both."""
    has_unit: bool = True
    """Whether the unit of a time is stated."""


@lru_cache(maxsize=4096)
def words_of(text: str) -> tuple[Word, ...]:
    """Return the words of `text`: parts of `camelCase`, `snake_case` and `a/b`, at most the last dozen."""
    found = [Word(_canonical(m[0]), m.start(), m.end()) for m in _WORD.finditer(text)]
    return tuple(found[-_MAX_WORDS:])


def _canonical(word: str) -> str:
    lower = "us" if word == "µs" else word.lower()
    return w.CANONICAL.get(lower, lower)


def texts_of(text: str) -> list[str]:
    """Return the canonical words of `text`."""
    return [word.text for word in words_of(text)]


def unit_of(text: str) -> list[str]:
    """Return the canonical words of a unit: behind a number, `min` is a minute."""
    return ["minute" if word == "min" else word for word in texts_of(text)]


def phrase_of(words: list[str]) -> str:
    """Return the words as a phrase: a stroke stands between two words, and once."""
    last = len(words) - 1
    kept = [word for at, word in enumerate(words) if word != "/" or (0 < at < last and words[at - 1] != "/")]
    return " ".join(kept)


def _iterated(words: list[str]) -> str:
    """Return the phrase with X for what an iteration is called."""
    return phrase_of(["X" if word in w.ITERATIONS else word for word in words])


@lru_cache(maxsize=4096)
def meaning(name: str, unit: str) -> Meaning | None:
    """Return what the number between `name` and `unit` is; None when nothing is known or the two contradict each other."""
    inner = _INNER.search(name)
    if inner and not unit and measured(texts_of(inner[1])):
        # `tokens per GPU (tokens/s/GPU)`: what stands in brackets is the unit.
        name, unit = name[: inner.start()], inner[1]
    named, united = texts_of(name), unit_of(unit)
    counted = _counted(named, united)
    if counted:
        return counted
    if phrase_of(named) in w.STAMPS:
        return Meaning("stamp")
    if not _FOREIGN_NAME.isdisjoint(named):
        return None
    by_name, by_unit = measured(named), measured(united)
    if by_name and (where := _WHERE.get(" ".join(united))):
        # `tokens/s: 5003 per GPU`
        return replace(by_name, place=by_name.place or where, per="" if by_name.per == "short" else by_name.per)
    if by_unit is None:
        return by_name
    return _told_by_unit(named, by_unit) if by_name is None else _together(by_name, by_unit)


def _told_by_unit(named: list[str], unit: Meaning) -> Meaning | None:
    """Return the meaning of a unit behind a name that is no measure itself."""
    if unit.kind == "time" and any(word.isalpha() for word in named):
        return None  # a time behind a word that nobody knows may be that of anything; a rate says itself what it is of
    if unit.kind.endswith("rate") and not w.NO_RATE.isdisjoint(named):
        return None  # `loss 2.31 tok/s`: the unit is the name of something else
    place = unit.place or ("total" if w.WHOLE & set(named) else "device" if w.DEVICE & set(named) else "")
    is_short = not place and unit.kind.endswith("s_rate") and w.SHORT.keys() & set(named)
    return replace(unit, by="unit", is_average="average" in named, place=place, per="short" if is_short else unit.per)


def _together(name: Meaning, unit: Meaning) -> Meaning | None:
    """Return the one meaning of a name and a unit."""
    place = name.place or unit.place
    if unit.kind == "time":
        is_time = name.kind in _TIMES and (not name.has_unit or name.factor == unit.factor)
        return replace(name, factor=unit.factor, has_unit=True, by="both") if is_time else None
    if name.kind == "rate" or (name.kind == "time" and unit.kind == "step_time"):
        return replace(unit, place=place, is_average=name.is_average, by="both", is_variant=name.is_variant)
    return replace(name, place=place, by="both", per=unit.per) if name.kind == unit.kind else None


def _counted(named: list[str], united: list[str]) -> Meaning | None:
    """Return the meaning of a number that is a count or a size, which needs no unit."""
    kept = [word for word in named if word not in w.PLAIN]
    if kept[:2] == ["throughput", "/"]:
        kept = kept[2:]
    phrase = phrase_of(kept)
    if phrase in w.LOSSES:
        return None if united else Meaning("loss")
    if not w.FOREIGN.isdisjoint(named):
        return None
    if phrase in w.COUNTERS:
        return None if united else Meaning("counter", per=w.COUNTERS[phrase])
    is_counted = not united or united == ["tok"] or phrase_of(united) in _AMOUNTS
    return _sized(kept, is_tokens=united == ["tok"]) if is_counted else None


def _sized(kept: list[str], *, is_tokens: bool) -> Meaning | None:
    """Return the meaning of a size or an amount, in tokens where its unit says so."""
    kind = _COUNTED.get(phrase_of(kept)) or _COUNTED.get(_iterated(kept))
    if kind:
        kind = "step_tokens" if kind == "global_batch" and is_tokens else kind
        return Meaning(kind, place="total" if w.WHOLE & set(kept) else "")
    if not kept and is_tokens:
        return Meaning("seen_tokens", by="unit")
    rest = [word for word in kept if word not in w.DEVICE]
    is_share = len(rest) < len(kept) and _iterated(rest) in w.STEP_TOKENS
    return Meaning("step_tokens", place="device") if is_share else None


_COUNTED = {
    phrase: kind
    for kind, phrases in reversed(
        (
            ("step_tokens", w.STEP_TOKENS),
            ("seen_tokens", w.SEEN_TOKENS),
            ("seen_samples", w.SEEN_SAMPLES),
            ("global_batch", w.GLOBAL_BATCH),
            ("micro_batch", w.MICRO_BATCH),
            ("accumulation", w.ACCUMULATION),
            ("data_parallel", w.DATA_PARALLEL),
            ("model_parallel", w.MODEL_PARALLEL),
            ("sequence", w.SEQUENCE),
            ("sequence_limit", w.SEQUENCE_LIMIT),
            ("devices_per_node", w.DEVICES_PER_NODE),
            ("devices", w.DEVICES),
            ("nodes", w.NODES),
        )
    )
    for phrase in phrases
}
_SETTINGS = frozenset(_COUNTED.values()) - {"seen_tokens", "seen_samples"}
# What stands in front of these may make them something else: `hidden block size`, `expert devices`.
_LIMITED = frozenset({"sequence_limit", "devices", "model_parallel"})


@lru_cache(maxsize=4096)
def fact(name: str, unit: str) -> tuple[Meaning, bool] | None:
    """Return what a number in prose or in a list of settings is, and whether its whole name says so, or its last words only.

    `with local batch size 8, global batch size 64` are two; words of evaluation, or a limit, in front of them forbid it.
    """
    named, united = texts_of(name), texts_of(unit)
    for begin, word in enumerate(named):
        found = _counted(named[begin:], united)
        if found and found.kind in _SETTINGS:
            is_odd = _is_odd(named[:begin])
            return None if is_odd and found.kind in _LIMITED else (found, not is_odd)
        if word in _FOREIGN_NAME:
            return None
    return None


def ending(name: str) -> Meaning | None:
    """Return the counter that the last words of `name` are: in front of a line's first number stands what its logger adds."""
    named = texts_of(name)
    for size in (2, 1):
        phrase, dropped = phrase_of(named[-size:]), named[:-size]
        if phrase in w.COUNTERS and (_FOREIGN_NAME | w.NO_COUNTER).isdisjoint(dropped):
            return Meaning("counter", per=w.COUNTERS[phrase])
    return None


def _is_odd(dropped: list[str]) -> bool:
    return any(
        word.isalpha() and word not in w.PLAIN and word not in {"with", "and", "using", "args"} for word in dropped
    )


def measured(named: list[str]) -> Meaning | None:
    """Return the meaning of words that name a rate or a time, in a name or behind a number."""
    if named[-2:] == ["/", "p"]:  # Ascend's "per processor"
        named = [*named[:-1], "dev"]
    present = set(named)
    place = "device" if present & w.DEVICE else "node" if "node" in present else "total" if present & w.WHOLE else ""
    short = next((word for word in named if word in w.SHORT), "")
    skipped = w.DEVICE | w.WHOLE | w.SHORT.keys() | w.VARIANTS | w.PLAIN | {"node", "average", "throughput"}
    kept = [part for word in named if word not in skipped for part in w.GLUED.get(word, (word,))]
    found = _rate_or_time(kept, place)
    if short and (found.kind == "tokens_rate" if found else not any(word.isalnum() for word in kept)):
        if w.SHORT[short] and place == "total":
            return None  # `tgs_all`: of one device, and since the start
        place = w.SHORT[short] or place
        # A name that spells the unit out as well is as good as any.
        found = found or Meaning("tokens_rate", per="" if place else "short")
    if found is None and "throughput" in present and not any(word.isalpha() for word in kept):
        found = Meaning("rate")
    if found is None:
        return None
    return replace(found, place=place, is_average="average" in present, is_variant=bool(present & w.VARIANTS))


def _rate_or_time(kept: list[str], place: str) -> Meaning | None:
    per = next((word for word in kept if word in w.ITERATIONS), "")
    units = [word for word in kept if word in w.TIME_UNITS]
    if len(set(units)) > 1:
        return None
    scale = w.TIME_UNITS[units[0]] if units else 1.0
    thousands = [w.THOUSANDS[word] for word in kept if word in w.THOUSANDS]
    counted = ["s" if word in w.TIME_UNITS else word for word in kept if word not in w.THOUSANDS]
    phrase = _iterated(counted)
    if phrase in w.RATES and len(thousands) < 2:
        return Meaning(w.RATES[phrase], factor=sum(thousands or [1.0]) / scale, per=per)
    # What is left of a time is its name: `step_time_ms`, `s / step`, `time per iteration (ms)`, `seconds`.
    bare = ["time" if word in w.TIME_UNITS and kept[at + 1 : at + 2] == ["/"] else word for at, word in enumerate(kept)]
    bare = [word for word in bare if word not in w.TIME_UNITS]
    core = _iterated([word for at, word in enumerate(bare) if not at or word != bare[at - 1]])
    if core in w.STEP_TIMES or (core == "X" and units):
        return Meaning("step_time", factor=scale, per=per or "step", has_unit=bool(units))
    if core in w.BARE_TIMES or (not core and units):
        return Meaning("clock" if place == "total" else "time", factor=scale, has_unit=bool(units))
    return None
