"""Immutable dataclasses that are quick to define: a command defines a hundred of them before it has done anything.

`dataclasses.dataclass` compiles six methods for each class (one by one up to Python 3.12), which took a quarter of the time of a
report of a small log. Here all classes share them; `fields`, `replace` and `asdict` take these as any other dataclass.
"""

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # typing has it from Python 3.11 on, and only type checkers need it

    def dataclass_transform(**_: Any) -> Any:  # noqa: D103  # as of typing
        return lambda decorated: decorated


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def immutable(kind: Any = None, /, *, kw_only: bool = True) -> Any:
    """Return the class as `dataclass(frozen=True, kw_only=True)` does; a method that it defines itself stays."""
    if kind is None:
        return partial(immutable, kw_only=kw_only)
    for name, method in vars(_Shared).items():
        if callable(method) and vars(kind).get(name) is None:  # __hash__ is None beside an __eq__ of its own
            setattr(kind, name, method)
    kind.__doc__ = kind.__doc__ or kind.__name__  # dataclass would work out the signature
    dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(kind)
    every = fields(kind)
    kind.field_defaults = {one.name: one.default for one in every}
    kind.field_factories = {one.name: one.default_factory for one in every if one.default_factory is not MISSING}
    without = {name for name, value in kind.field_defaults.items() if value is MISSING}
    kind.required_fields = without - kind.field_factories.keys()
    return kind


class _Shared:
    """The methods of all."""

    field_defaults: dict[str, Any]  # of all fields, in their order
    field_factories: dict[str, Any]
    required_fields: set[str]

    def __init__(self, *words: Any, **values: Any) -> None:
        held = self.__dict__
        held.update(self.field_defaults)
        if words:
            values = dict(zip(list(self.field_defaults)[: len(words)], words, strict=True)) | values
        held.update(values)
        if len(held) != len(self.field_defaults) or not self.required_fields <= values.keys():
            unknown, missing = values.keys() - self.field_defaults.keys(), self.required_fields - values.keys()
            raise TypeError(f"{type(self).__name__}: unknown: {sorted(unknown)}, missing: {sorted(missing)}")
        for name, make in self.field_factories.items():
            if name not in values:
                held[name] = make()
        if check := getattr(self, "__post_init__", None):
            check()

    def __repr__(self) -> str:
        every: Any = self
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(every) if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _compared(every: Any) -> tuple[Any, ...]:
    return tuple(getattr(every, one.name) for one in fields(every) if one.compare)
