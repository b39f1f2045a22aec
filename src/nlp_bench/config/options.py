"""Options from dataclasses: a field has its names, its group and its value, the text beside or below it is the help; each is defined once."""

import argparse
import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, get_args, get_origin

from nlp_bench.config.values import OneOf, UnlessDefault, size, switch
from nlp_bench.errors import UsageError

Container: TypeAlias = "argparse._ActionsContainer"  # noqa: SLF001  # the only base that parsers and groups have
"""A parser, or a group of one."""


def option(  # noqa: PLR0913  # each is one property of the option
    *names: str,
    group: str = "",
    read: Callable[[str], Any] | None = None,
    words: tuple[str, ...] = (),
    least: int = 1,
    metavar: str = "",
    jube: str = "",
    of_job: bool = False,
    default: Any = None,
) -> Any:
    """Return a dataclass field that is an option too. Its value is None where it is not given, and `default` in a Checked record.

    `names` are the spellings, the first one is that of help and documentation (none: the field's own); `read` reads a value (by
    default one of `words`, else by the type: int a size, bool true or false, tuple a repeated option, str the text
    itself); `words` and `least` bound the value of a record; `metavar` shows its unit; `jube` is JUBE's parameter; an option
    `of_job` decides where and for how long a job runs, and nothing of what is trained. With MISSING as default a record needs a value.
    """
    return field(
        default=None,
        metadata={
            "names": names, "group": group, "read": read or (OneOf(*words) if words else None), "words": words, "least": least,
            "metavar": metavar or ("WORD" if words else ""), "jube": jube, "of_job": of_job, "default": default, "unset": True,
        },
    )  # fmt: skip


def value(*names: str, default: Any = None, **metadata: Any) -> Any:
    """Return a field of a subcommand that is its option, of a tuple a repeated one; `metadata` as of `option`, `help`, and argparse's `nargs` and `const`."""
    return field(default=default, metadata={"names": names, **metadata})


def flag(*names: str, group: str = "", hidden: bool = False) -> Any:
    """Return a field of a subcommand that is a switch without a value."""
    return value(*names, default=False, group=group, hidden=hidden)


def argument(metavar: str, *, default: Any = MISSING, **metadata: Any) -> Any:
    """Return a field of a subcommand that is a positional argument; `metadata` as of `value`."""
    return field(default=default, metadata={"names": None, "metavar": metavar, **metadata})


def one_of(*words: str, default: Any = MISSING) -> Any:
    """Return a field of a Checked dataclass that takes only these words."""
    return field(default=default, metadata={"words": words})


def from_zero(default: Any = MISSING) -> Any:
    """Return a field of a Checked dataclass whose whole number may be 0."""
    return field(default=default, metadata={"least": 0})


def within(least: float, most: float, unit: str, default: Any = MISSING) -> Any:
    """Return a field of a Checked dataclass whose number, in `unit`, is within a plausible range."""
    return field(default=default, metadata={"least": least, "most": most, "unit": unit})


class Checked:
    """A dataclass whose fields check the rule in their definition: one of some words, or a range; whole numbers without one are above 0."""

    WHERE: ClassVar[str]

    def __init_subclass__(cls, *, where: str = "") -> None:
        """Take the dotted name that errors begin with."""
        cls.WHERE = where or getattr(cls, "WHERE", "")

    def __post_init__(self) -> None:
        """Set options that were not given to their default; raise UsageError for the first field that breaks its rule."""
        for one in fields(self):  # type: ignore[arg-type]  # of a dataclass
            held, name = getattr(self, one.name), f"{self.WHERE}.{one.name}"
            if held is None and (held := one.metadata.get("default")) is not None:
                if held is MISSING:
                    raise UsageError(f"{name}: missing")
                object.__setattr__(self, one.name, held)
            words, least = one.metadata.get("words"), one.metadata.get("least", 1)
            if words and isinstance(held, str) and held not in words:
                number = ", and no whole number, which stands without quotes" if "int" in str(one.type) else ""
                raise UsageError(f"{name}: {held!r} is not one of {', '.join(words)}{number}")
            if "most" in one.metadata and held is not None:
                if not least <= held <= one.metadata["most"]:
                    rule = f"{least:g} to {one.metadata['most']:g} {one.metadata['unit']}"
                    raise UsageError(f"{name}: {held:g} is not within {rule}")
            elif isinstance(held, int) and not isinstance(held, bool) and held < least:
                raise UsageError(f"{name}: {held} must be {'greater than 0' if least else 'at least 0'}")
        self._check()

    def _check(self) -> None:
        """Raise UsageError for a rule about several fields that is broken."""


def spellings(record: type, name: str) -> tuple[str, ...]:
    """Return the spellings of a field's option; the first one is that of help and documentation."""
    names: tuple[str, ...] = next(one.metadata["names"] for one in fields(record) if one.name == name)
    return names or ("--" + name.replace("_", "-"),)


def given(options: object, kind: type) -> dict[str, Any]:
    """Return the fields of `kind` for which `options` has a value, by name."""
    names = (one.name for one in fields(kind))
    return {name: value for name in names if (value := getattr(options, name, None)) is not None}


def add_fields(container: Container, record: type, names: Iterable[str]) -> None:
    """Add the options of these fields of `record`. `explain` adds their help, which only --help needs."""
    for one in fields(record):
        if one.name in names:
            if one.metadata["names"] is None:
                container.add_argument(one.name, **_keywords(one))
            else:
                container.add_argument(*spellings(record, one.name), dest=one.name, **_keywords(one))


def _keywords(one: "Field[Any]") -> dict[str, Any]:
    """Return argparse's keywords for a field; what is not given is None, and so is JUBE's "default" for an option of a run."""
    kinds, metadata = {*get_args(one.type), one.type}, one.metadata
    read = metadata.get("read") or (Path if Path in kinds else size if int in kinds else None)
    is_unset, nargs, metavar = metadata.get("unset"), metadata.get("nargs"), metadata.get("metavar") or None
    if bool in kinds:
        return (
            {"type": UnlessDefault(switch), "nargs": "?", "const": True, "metavar": "BOOL"}
            if is_unset
            else {"action": "store_true", "default": None}
        )
    if get_origin(one.type) is tuple and not nargs and (read is None or metadata.get("is_repeated")):
        return {"action": "append", "metavar": metavar, "type": read}
    how = {
        "type": UnlessDefault(read or str) if is_unset else read,
        "metavar": metavar or ("N" if int in kinds else None),
    }
    if nargs:
        how |= {"nargs": nargs, "const": metadata.get("const")} if nargs == "?" else {"nargs": nargs}
    return how


def explain(actions: "Iterable[argparse.Action]", record: type) -> None:
    """Give these options of `record` their help: the docstrings of their fields."""
    texts, by_name = field_texts(record), {one.name: one for one in fields(record)}
    for action in actions:
        if action.help is None and (one := by_name.get(action.dest)):
            other = one.metadata.get("from")
            action.help = (
                argparse.SUPPRESS
                if one.metadata.get("hidden")
                else one.metadata.get("help") or _help(texts.get(one.name) or field_texts(other)[one.name])
            )


def _help(text: str) -> str:
    """Return a docstring as help: it begins in lower case and has no full stop."""
    text = " ".join(text.split()).removesuffix(".").replace("%", "%%")
    return text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


@functools.cache
def field_texts(record: type) -> dict[str, str]:
    """Return what stands below or beside each field of a dataclass, inherited ones too, read from the source so that nothing is written twice."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if is_dataclass(base):
            lines, classes = _source(base.__module__)
            body = classes[base.__name__].body
            for one, below in itertools.zip_longest(body, body[1:]):
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    beside = lines[one.lineno - 1].partition("  # ")[2] if one.lineno == one.end_lineno else ""
                    text = str(ast.literal_eval(below.value)) if isinstance(below, ast.Expr) else beside
                    found |= {one.target.id: text} if text else {}
    return found


@functools.cache
def _source(module: str) -> tuple[list[str], dict[str, ast.ClassDef]]:
    text = inspect.getsource(sys.modules[module])
    return text.splitlines(), {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
