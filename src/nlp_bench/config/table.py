"""From a TOML table or a JSON object to a frozen dataclass: unknown keys, missing keys, wrong types and wrong values are refused by name."""

import contextlib
import dataclasses
import functools
import math
import re
import shlex
import sys
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from nlp_bench.config.values import TIMELIMIT, seconds_of
from nlp_bench.errors import UsageError, nearest
from nlp_bench.files import open_for_reading
from nlp_bench.layout.rules import multiple as not_multiple
from nlp_bench.redact import without_secrets

if sys.version_info >= (3, 11):
    import tomllib
else:
    try:
        import tomli as tomllib
    except ModuleNotFoundError:  # before the virtual environment exists, pip's own copy serves
        from pip._vendor import tomli as tomllib

Record = TypeVar("Record")


def read_toml(path: Path, schema: str) -> dict[str, Any]:
    """Read one data file and check its `schema` line; the line itself is not returned."""
    try:
        with open_for_reading(path) as stream:
            content = stream.read()
        if b"\0" in content or content.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UsageError(_not_utf8(path, "UTF-16"))
        table: dict[str, Any] = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UsageError(_not_utf8(path, "ISO-8859-1")) from None
    except RecursionError:
        raise UsageError(f"{path} is not valid TOML: it is nested too deeply") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}{_line_of(content, str(error))}") from error
    found = table.pop("schema", None)
    if found != schema:
        raise UsageError(f'{path}: schema is {found!r}; this nlp-bench reads schema = "{schema}"')
    return table


def _line_of(content: bytes, said: str) -> str:
    """Return the line that the reader of TOML names, escaped: a typographic quote or a no-break space looks like what was meant."""
    number = re.search(r"at line (\d+)", said)
    if not number:
        return ""
    line = content.decode("utf-8-sig").split("\n")[int(number[1]) - 1]
    return f"; the line reads {without_secrets(line)[:100]!a}"


def _not_utf8(path: Path, encoding: str) -> str:
    word = shlex.quote(str(path))
    return f"{path} is no text in UTF-8, which TOML is; save it as UTF-8: iconv -f {encoding} -t UTF-8 {word} > NEW"


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields; to work them out takes longer than to build the record."""
    return typing.get_type_hints(kind)


def build(kind: type[Record], table: dict[str, Any], where: str) -> Record:
    """Build the dataclass `kind` from `table`; `where` is the dotted name that errors begin with."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise UsageError(f"{where}.{key}: unknown key{nearest(key, list(fields))}")
    hints = _hints(kind)  # type: ignore[arg-type]  # a class can be hashed
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in table:
            values[name] = _convert(hints[name], table[name], f"{where}.{name}")
        elif field.metadata.get("default", field.default) is field.default_factory is dataclasses.MISSING:
            raise UsageError(f"{where}.{name}: missing; add it to the data file")
    return kind(**values)


def check_types(kind: type[Any], record: dict[str, Any], where: str) -> None:
    """Refuse an untrusted record with fields of other types than `kind` has; keys that are missing or unknown are ignored. Raises UsageError naming the field."""
    for name, hint, plain, nested, is_table in _fields(kind):  # type: ignore[arg-type]  # a class can be hashed
        value = record.get(name)
        if nested and isinstance(value, dict):
            check_types(nested, value, f"{where}.{name}")
        elif type(value) in plain and (type(value) is not float or math.isfinite(value)):
            continue  # nearly all of them, without the questions of `_convert`
        elif value is not None and not (is_table and isinstance(value, dict)):
            _convert(hint, value, f"{where}.{name}")


@functools.cache
def _fields(kind: type[Any]) -> tuple[tuple[str, Any, frozenset[Any], type[Any] | None, bool], ...]:
    """Return of each field its name, its type, the plain types that it may have, the dataclass in it, and whether it is records by name, which no measurement reads."""
    found = []
    for name, hint in _hints(kind).items():  # type: ignore[arg-type]  # a class can be hashed
        is_table = typing.get_origin(hint) is dict
        nested = next((one for one in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(one)), None)
        plain = {int, str, bool, float}.intersection(typing.get_args(hint) if _is_union(hint) else (hint,))
        found.append(
            (name, hint, frozenset(plain), None if is_table else typing.cast("type[Any] | None", nested), is_table)
        )
    return tuple(found)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in {typing.Union, types.UnionType}


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if _is_union(hint):
        return _convert_union(arguments, value, where)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return build(typing.cast("type[Any]", hint), value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(arguments[0], item, where) for item in value)
    if origin is dict and isinstance(value, dict):
        return {key: _convert(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(value, where)
    is_plain = origin is None and isinstance(hint, type)  # tuple[str, ...] is a type, too, for Python 3.10
    if is_plain and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise UsageError(f"{where}: {value!r} is not {_describe(hint)}")


def _finite(value: float, where: str) -> float:
    with contextlib.suppress(OverflowError):  # a whole number of 400 digits
        if math.isfinite(value):
            return float(value)
    raise UsageError(f"{where}: {str(value)[:40]} is not a finite number")


def _convert_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    *others, last = (hint for hint in arguments if hint is not type(None))
    if not others:
        return _convert(last, value, where)  # whose error names the field inside a table
    for hint in (*others, last):
        with contextlib.suppress(UsageError):
            return _convert(hint, value, where)
    raise UsageError(f"{where}: {value!r} is not {' or '.join(_describe(hint) for hint in (*others, last))}")


def _describe(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a string in quotes", bool: "true or false"}
    name = "dict" if dataclasses.is_dataclass(hint) else getattr(hint, "__name__", hint)
    return names.get(hint) or {"tuple": 'a list in brackets, such as ["..."]', "dict": "a table"}.get(name, f"a {name}")


NONCE = re.compile(r"[A-Za-z0-9._:+=/@-]{1,128}")


def multiple(field: str, what: str, value: int, divisor_name: str, divisor: int) -> None:
    """Refuse a number that cannot be divided evenly; the message shows the arithmetic."""
    if value % divisor:
        raise UsageError(f"{field}: {not_multiple(what, value, divisor_name, divisor)}")


def timelimit(field: str, value: str) -> None:
    """Refuse a time limit that Slurm would misread: only HH:MM:SS and D-HH:MM:SS are clear to all."""
    if not TIMELIMIT.fullmatch(value):
        raise UsageError(f'{field}: {value!r} is not HH:MM:SS or D-HH:MM:SS; in YAML put it in quotes ("00:30:00")')
    if not seconds_of(value):
        raise UsageError(f"{field}: {value!r} is no time limit: zero is none to Slurm; write how long the job may run")


def file_name(field: str, value: str) -> None:
    """Refuse a name that cannot be a part of a folder's name and of a line of the job script."""
    if (
        not value.isprintable()
        or value != value.strip()
        or "/" in value
        or value.startswith(".")
        or not 0 < len(value.encode("utf-8", "replace")) <= 100
    ):
        raise UsageError(
            f"{field}: {value[:120]!r} is no name: 1 to 100 printable signs without /, not beginning with a dot"
        )


def nonce(field: str, value: str | None) -> None:
    """Refuse a nonce that could not be written unchanged in a line of a log and in a command; `none` there means that there is none."""
    if value is not None and (not NONCE.fullmatch(value) or value == "none"):
        raise UsageError(
            f"{field}: {value[:140]!r} is no nonce: 1 to 128 letters, digits and . _ : + = / @ - (and not the word none); "
            "for example the output of: openssl rand -hex 16"
        )


def no_secret(field: str, text: str) -> None:
    """Refuse words with a password or a token in them: they would be copied into every record of the run."""
    if without_secrets(text) != text:
        raise UsageError(
            f"{field}: holds what looks like a secret ({without_secrets(text)[:200]}), which would be copied into every record; "
            "let the program take it from a variable or from its own file"
        )
