"""What the groups of settings are made with: a field of few words, and refusals with their arithmetic."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from nlp_bench.errors import UsageError


def one_of(*words: str, default: str | None = None) -> Any:
    """Return a dataclass field that accepts only these words; the command line shows them as choices."""
    return field(default=default, metadata={"choices": words})


def words_of(*words: str) -> Any:
    """Return a dataclass field that accepts any number of these words, none by default."""
    return field(default=(), metadata={"choices": words})


def require(condition: bool, message: str) -> None:
    """Raise UsageError with `message` unless `condition` holds."""
    if not condition:
        raise UsageError(message)


def multiple(name: str, value: int, divisor: int, rule: str) -> None:
    """Raise UsageError `name: VALUE is not a multiple of RULE = DIVISOR` unless it is one."""
    require(value % divisor == 0, f"{name}: {value} is not a multiple of {rule} = {divisor}")


def positive(values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise UsageError for the first of `names` whose value is given and not finite and above 0."""
    for name in names:
        require(values[name] is None or 0 < values[name] < math.inf, f"{name}: {values[name]} is not positive")


def not_negative(values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise UsageError for the first of `names` whose value is below 0 or not finite."""
    for name in names:
        require(not values[name] < 0, f"{name}: {values[name]} is negative")
        require(values[name] < math.inf, f"{name}: {values[name]} is no finite number")


def share(values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise UsageError for the first of `names` whose value is not in [0, 1)."""
    for name in names:
        require(0 <= values[name] < 1, f"{name}: {values[name]} is not in [0, 1)")


def exclusive(values: Mapping[str, Any], first: str, second: str) -> None:
    """Raise UsageError where both of two fields are given."""
    both = bool(values[first]) and bool(values[second])
    require(not both, f"{first}: {values[first]} and {second} {values[second]} exclude each other; give one")
