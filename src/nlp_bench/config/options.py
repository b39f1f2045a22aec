"""Options from dataclasses: a field says its names, its group and its value, its docstring is the help; each is defined once."""

import ast
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable
from dataclasses import Field, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin

from nlp_bench.config.values import UnlessDefault, size, switch

if TYPE_CHECKING:
    import argparse

Container: TypeAlias = "argparse._ActionsContainer"  # noqa: SLF001  # the only base that parsers and groups have
"""A parser, or a group of one."""


def option(
    *names: str, group: str = "", read: Callable[[str], Any] | None = None, metavar: str = "", default: Any = None
) -> Any:
    """Return a dataclass field that is an option too.

    `names` are the spellings, the first one is that of help and documentation (none: the field's own); `read` reads a value
    (default: by the type: int a size, bool true or false, tuple words that are repeated, str the word itself).
    """
    metadata = {"names": names, "group": group, "read": read, "metavar": metavar}
    return field(default=default, metadata=metadata)


def spellings(record: type, name: str) -> tuple[str, ...]:
    """Return the spellings of a field's option; the first one is that of help and documentation."""
    names = next(one.metadata["names"] for one in fields(record) if one.name == name)
    return names or ("--" + name.replace("_", "-"),)


def add_fields(container: Container, record: type, names: Iterable[str], texts: dict[str, str] | None = None) -> None:
    """Add the options of these fields of `record`; `texts` replaces the help of some."""
    helps = field_texts(record)
    by_name = {one.name: one for one in fields(record)}
    for name in names:
        text = (texts or {}).get(name) or _help(helps[name])
        container.add_argument(*spellings(record, name), dest=name, help=text, **_how(by_name[name]))


def groups(record: type) -> dict[str, list[str]]:
    """Return the names of the fields by the group that they are shown in."""
    found: dict[str, list[str]] = {}
    for one in fields(record):
        found.setdefault(one.metadata["group"], []).append(one.name)
    return found


def _how(one: "Field[Any]") -> dict[str, Any]:
    """Return how argparse reads a field; what is not given, and JUBE's word "default", are None."""
    kinds = get_args(one.type) or (one.type,)
    read, metavar = one.metadata["read"], one.metadata["metavar"] or None
    if get_origin(one.type) is tuple:
        return {"action": "append", "metavar": metavar}
    if bool in kinds:
        return {"type": UnlessDefault(switch), "nargs": "?", "const": True, "metavar": "BOOL"}
    if int in kinds:
        return {"type": UnlessDefault(read or size), "metavar": metavar or "N"}
    return {"type": UnlessDefault(read or str), "metavar": metavar}


def _help(text: str) -> str:
    """Return a docstring as help: it begins small and has no full stop."""
    text = text.removesuffix(".").replace("%", "%%")
    return text[0].lower() + text[1:] if text[1:2].islower() else text


def field_texts(record: type) -> dict[str, str]:
    """Return the docstring of each field of a dataclass and of those that it inherits, read from the source so that nothing is written twice."""
    inherited = [field_texts(base) for base in record.__bases__ if is_dataclass(base)]
    source = ast.parse(inspect.getsource(sys.modules[record.__module__])).body
    body = next(node for node in source if isinstance(node, ast.ClassDef) and node.name == record.__name__).body
    own = {
        name.target.id: str(ast.literal_eval(text.value))
        for name, text in itertools.pairwise(body)
        if isinstance(name, ast.AnnAssign) and isinstance(name.target, ast.Name) and isinstance(text, ast.Expr)
    }
    return {name: text for texts in (*inherited, own) for name, text in texts.items()}
