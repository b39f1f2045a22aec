"""Two records compared field by field: each difference is named with its path and both values."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

RELATIVE = 1e-9
"""Numbers nearer than this are equal: another processor adds a million times in another order."""
_LONGEST = 160


def differences(stated: Any, derived: Any, place: str = "", *, ignore_new: bool = False) -> Iterator[str]:
    """Yield a sentence for each field that differs; with `ignore_new`, what only `derived` has is none.

    `stated` is what a bundle says, `derived` what follows from its log.
    """
    if isinstance(stated, Mapping) and isinstance(derived, Mapping):
        for key in stated:
            yield from differences(stated[key], derived.get(key, _NOTHING), _below(place, key), ignore_new=ignore_new)
        if not ignore_new:
            yield from (_sentence(_below(place, key), _NOTHING, derived[key]) for key in derived if key not in stated)
    elif isinstance(stated, list) and isinstance(derived, list) and len(stated) == len(derived):
        for index, pair in enumerate(zip(stated, derived, strict=True)):
            yield from differences(*pair, f"{place}[{index}]", ignore_new=ignore_new)
    elif isinstance(stated, list) and isinstance(derived, list):
        yield f"{place}: bundle has {len(stated)} entries, the log gives {len(derived)}"
    elif not _is_equal(stated, derived):
        yield _sentence(place, stated, derived)


_NOTHING = object()


def _below(place: str, key: object) -> str:
    return f"{place}.{key}" if place else str(key)


def _is_equal(stated: Any, derived: Any) -> bool:
    if type(stated) is bool or type(derived) is bool:
        return stated is derived
    if isinstance(stated, int | float) and isinstance(derived, int | float):
        try:
            return math.isclose(stated, derived, rel_tol=RELATIVE)
        except OverflowError:
            return stated == derived
    return bool(type(stated) is type(derived) and stated == derived)


def _sentence(place: str, stated: Any, derived: Any) -> str:
    return f"{place}: bundle says {_written(stated)}, the log gives {_written(derived)}"


def _written(value: Any) -> str:
    if value is _NOTHING:
        return "nothing"
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
