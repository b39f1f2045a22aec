"""A small checker of JUBE's YAML: JUBE itself ignores a misspelt key and reads 1:00:00 as a number."""

import re
from pathlib import Path
from typing import Any

import yaml

KEYS = {
    "top": {"name", "outpath", "comment", "parameterset", "patternset", "step", "analyser", "result"},
    "parameterset": {"name", "init_with", "parameter", "duplicate"},
    "parameter": {"name", "_", "tag", "mode", "type", "separator", "update_mode", "export", "duplicate"},
    "patternset": {"name", "init_with", "pattern"},
    "pattern": {"name", "_", "tag", "mode", "type", "default"},
    "step": {
        "name",
        "depend",
        "use",
        "do",
        "tag",
        "active",
        "iterations",
        "shared",
        "export",
        "max_async",
        "do_log_file",
    },
    "do": {"_", "done_file", "error_file", "break_file", "tag", "active", "stdout", "stderr", "work_dir", "shared"},
    "analyser": {"name", "use", "analyse", "reduce", "tag"},
    "analyse": {"step", "file", "use", "tag"},
    "result": {"name", "use", "table", "result_dir"},
    "table": {"name", "tag", "style", "sort", "column", "separator", "transpose", "filter"},
    "column": {"title", "format", "_"},
}
CHILDREN = {
    "top": ("parameterset", "patternset", "step", "analyser", "result"),
    "parameterset": ("parameter",),
    "patternset": ("pattern",),
    "step": ("do",),
    "analyser": ("analyse",),
    "result": ("table",),
    "table": ("column",),
}


def problems(path: Path) -> list[str]:
    """Return what is wrong with a JUBE file, one sentence each."""
    text = path.read_text(encoding="utf-8")
    found = [
        f"line {n}: unquoted time"
        for n, line in enumerate(text.splitlines(), 1)
        if re.search(r"[:,_] +\d+:\d\d", line.split(" #")[0])
    ]
    _visit("top", yaml.load(text, Loader=_NoDuplicates), path.name, found)  # noqa: S506  # derived from SafeLoader
    return found


def _visit(kind: str, value: Any, where: str, found: list[str]) -> None:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            _check_shell(kind, item, where, found)
            continue
        name = f"{where}/{kind}:{item.get('name', item.get('title', ''))}"
        found += [f"{name}: unknown key {key!r}" for key in item if key not in KEYS[kind]]
        _check_shell(kind, str(item.get("_", "")), name, found)
        if re.search(r"[,^]", str(item.get("tag", ""))):
            found.append(f"{name}: comma or ^ in tag")
        if kind == "parameter" and not isinstance(item.get("_"), str):
            found.append(f"{name}: the value is not in quotes")
        if kind == "parameter" and "--" in str(item.get("_")) and "," in str(item.get("_")) and "separator" not in item:
            found.append(f"{name}: a comma in an option needs a separator")
        for child in CHILDREN.get(kind, ()):
            if child in item:
                _visit(child, item[child], name, found)


def _check_shell(kind: str, text: str, where: str, found: list[str]) -> None:
    text = re.sub(r"<< '(\w+)'\n.*?\n\1\n", "", text, flags=re.DOTALL)  # a here-document is data
    if kind == "do" and (len(text.strip().splitlines()) > 3 or re.search(r"[;|`]|&&|\$\(", text)):
        found.append(f"{where}: more than one plain command in a do")


class _NoDuplicates(yaml.SafeLoader):
    """SafeLoader that refuses a key that stands twice."""


def _mapping(loader: _NoDuplicates, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    if len(keys) != len(set(keys)):
        raise yaml.YAMLError(f"duplicate key in {keys}")
    return {key: loader.construct_object(value, deep=True) for key, (_, value) in zip(keys, node.value, strict=True)}


_NoDuplicates.add_constructor("tag:yaml.org,2002:map", _mapping)
