"""The command line of the trainer: one option per field of Settings. No torch here."""

import argparse
import os
import re
from dataclasses import MISSING, Field, fields
from typing import Any, NoReturn, get_args, get_origin

from nlp_bench.config.options import field_texts
from nlp_bench.errors import UsageError, nearest
from nlp_bench.train.settings import Settings


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError instead of printing the usage of all options."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def parse(words: list[str]) -> Settings:
    """Parse a command line, with numbers such as 128_953_125; raises UsageError, which names the nearest of an unknown option. `--help` exits 0."""
    docs = help_texts() if {"-h", "--help"} & set(words) else {}
    parser = _Parser(
        prog="python -m nlp_bench.train",
        description="Train a GPT, a T5 or a BERT with megatron-core and log its throughput; start it with torchrun for several ranks.",
        usage="%(prog)s OPTION ...",
        allow_abbrev=False,
    )
    for option in fields(Settings):
        parser.add_argument(flag(option.name), **_kind(option), help=docs.get(option.name))
    known = spellings()
    for word in words:
        name = word.split("=")[0]
        if name.startswith("--") and name not in {*known, "--help"}:
            raise UsageError(f"unknown argument {name}{nearest(name, known)}")
    found, unknown = parser.parse_known_args(words)
    if unknown:
        raise UsageError(f"unknown argument {unknown[0]!r}: options begin with --")
    given: dict[str, Any] = vars(found)
    for name, value in given.items():
        if value == "":
            raise UsageError(f"{name}: empty; give {flag(name)} a value, or leave it out")
        for one in value if isinstance(value, list) else [value]:
            if sign := _left_by_the_shell(str(one)):
                raise UsageError(
                    f"{name}: {one}: no shell has replaced the {sign}, as none does in single quotes or in YAML; write the folder out"
                )
    values: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return Settings(**values)


def _left_by_the_shell(path: str) -> str | None:
    """Return the ~ or the variable, such as $SCRATCH, that still begins a part of the path; None where there is none, or a folder of that name."""
    found = re.match("~(?=/)", path) or re.search(r"(?<![^/])\$(\w+|\{\w+\})", path)
    if found is None or (found.group() != "~" and os.path.lexists(path[: found.end()])):
        return None
    return found.group()


def flag(name: str) -> str:
    """Return the option of a field: `num_layers` becomes `--num-layers`."""
    return "--" + name.replace("_", "-")


def spellings() -> list[str]:
    """Return every option of the trainer."""
    return [flag(option.name) for option in fields(Settings)]


def _kind(option: Field[Any]) -> dict[str, Any]:
    if option.type is bool:
        return {"action": "store_true"}
    kind = next((part for part in get_args(option.type) if part is not type(None)), option.type)
    known: dict[str, Any] = {"type": kind, "choices": option.metadata.get("choices")}
    if get_origin(option.type) is tuple:
        known |= {"nargs": "*"}
    return known | ({"required": True} if option.default is MISSING else {"default": option.default})


def help_texts() -> dict[str, str]:
    """Return name to docstring of each field of Settings."""
    return {name: text.replace("%", "%%") for name, text in field_texts(Settings).items()}
