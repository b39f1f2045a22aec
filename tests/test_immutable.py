"""A class is the same whether `immutable` or the standard library's `dataclass` makes it."""

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from nlp_bench.immutable import immutable

Maker = Callable[[type], type]
STANDARD: Maker = dataclass(frozen=True, kw_only=True)


def kinds(maker: Maker) -> tuple[Any, Any]:
    class Base:
        """A record."""

        one: int
        two: str = "b"
        many: list[int] = field(default_factory=lambda: [1])
        unseen: int = field(default=7, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.one < 0:
                raise ValueError

    base: Any = maker(Base)

    class Derived(base):
        two: str = "c"
        three: float

        def __hash__(self) -> int:
            return 5

    return base, maker(Derived)


def outcome(work: Callable[[Any, Any], Any], maker: Maker) -> Any:
    base, derived = kinds(maker)
    try:
        return work(base, derived)
    except (TypeError, ValueError, AttributeError) as error:
        return type(error)


@pytest.mark.parametrize(
    "work",
    [
        lambda b, _: str(b(one=1)).split(".")[-1],
        lambda _, d: [(f.name, getattr(d(one=1, three=2.0), f.name)) for f in fields(d)],
        lambda _, d: list(vars(d(three=2.0, one=1))),
        lambda _, d: asdict(replace(d(one=1, three=2.0), one=4)),
        lambda b, _: (b(one=1) == b(one=1), b(one=1) == b(one=2), b(one=1) == b(one=1, unseen=8), b(one=1) == 1),
        lambda b, d: b(one=1, two="c") == d(one=1, three=2.0),
        lambda b, _: b(one=1).many is b(one=1).many,
        lambda b, _: hash(b(one=1, many=())) == hash(b(one=1, many=(), unseen=8)),
        lambda b, _: hash(b(one=1)),
        lambda _, d: hash(d(one=1, three=2.0)),
        lambda b, _: setattr(b(one=1), "one", 2),
        lambda b, _: delattr(b(one=1), "one"),
        lambda b, _: b(one=-1),
        lambda b, _: b(),
        lambda b, _: b(one=1, four=4),
        lambda b, _: b(four=4),
        lambda b, _: replace(b(one=1), four=4),
        lambda _, d: d(one=1),
    ],
)
def test_it_does_what_a_dataclass_does(work: Callable[[Any, Any], Any]) -> None:
    assert outcome(work, immutable) == outcome(work, STANDARD)


@immutable(kw_only=False)
class Pair:
    first: int
    second: int = 2


def test_positions_are_taken_where_a_class_allows_them() -> None:
    assert Pair(1) == Pair(1, 2) == Pair(first=1, second=2)
    assert pickle.loads(pickle.dumps(Pair(1, 3))) == Pair(1, 3)  # noqa: S301  # our own
    with pytest.raises(FrozenInstanceError):
        dataclasses.replace(Pair(1)).first = 2  # type: ignore[misc]
    for words in ((), (1, 2, 3)):
        with pytest.raises((TypeError, ValueError)):
            Pair(*words)
