"""Every `$name` of JUBE's files stands for something: JUBE itself puts an empty string for one that nothing defines, and says nothing."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

NAME = re.compile(r"(?<!\$)(?:\$\$)*\$(?:\{(\w+)\}|([A-Za-z_]\w*))")  # as jube2/parameter.py has it; `$$` is a dollar
OWN = re.compile(
    r"jube_(benchmark_(name|id|padid|home|rundir|start)|step_(name|iterations|cycles)|res_analyser|pat_(n?int|n?fp|n?wrd|bl)"
    r"|wp_(id|padid|cycle|iteration|relpath|abspath|envstr|envlist|parent_\w+_(id|iteration|cycle)))"
)
"""JUBE's own variables and patterns. Source: glossary of its documentation, "jube_variables" and "jube_pattern"."""
Item = dict[str, Any]


def unknown_names(path: Path) -> list[str]:
    """Return what `path` names without a definition, one sentence each."""
    file = _File(path)
    return [*file.of_parameters(), *file.of_steps(), *file.of_tables()]


class _File:
    def __init__(self, path: Path) -> None:
        self.content = _load(path)
        self.parameters = _defined(self.content, path.parent, "parameterset", "parameter")
        self.patterns = _defined(self.content, path.parent, "patternset", "pattern")
        self.steps = {str(step["name"]): step for step in _items(self.content.get("step"))}

    def of_parameters(self) -> Iterator[str]:
        """A parameter may name those of any set: which sets meet is the step's choice."""
        known = {name for group in self.parameters.values() for name in group}
        for group, items in self.parameters.items():
            for name, values in items.items():
                yield from _missing(f"parameter {group}.{name}", " ".join(values), known)

    def of_steps(self) -> Iterator[str]:
        """A command sees the sets of its own step and of those that it depends on."""
        for name, step in self.steps.items():
            known = self._seen(name)
            for command in _items(step.get("do")):
                words = [command] if isinstance(command, str) else list(map(str, command.values()))
                yield from _missing(f"step {name}", " ".join(words), known)

    def of_tables(self) -> Iterator[str]:
        """A column is a pattern, a parameter or a variable of JUBE."""
        known = {name for groups in (self.parameters, self.patterns) for group in groups.values() for name in group}
        for table in _items((self.content.get("result") or {}).get("table")):
            for column in _items(table.get("column")):
                name = str(column["_"] if isinstance(column, dict) else column)
                if name not in known and not OWN.fullmatch(name):
                    yield f"table {table['name']}: no pattern or parameter {name!r}"

    def _seen(self, step: str) -> set[str]:
        used = _names(self.steps[step].get("use"))
        names = {name for group in used for name in self.parameters.get(group, {})}
        return names.union(*(self._seen(above) for above in _names(self.steps[step].get("depend"))))


def _missing(where: str, text: str, known: set[str]) -> Iterator[str]:
    for braced, plain in NAME.findall(text):
        if (braced or plain) not in known and not OWN.fullmatch(braced or plain):
            yield f"{where}: nothing defines ${braced or plain}"


def _defined(content: Item, folder: Path, kind: str, entry: str) -> dict[str, dict[str, list[str]]]:
    """Return, by set and name, the values of all definitions: one per tag."""
    found: dict[str, dict[str, list[str]]] = {}
    for group in _items(content.get(kind)):
        own = [group, *_taken_over(group, folder, kind)]
        for item in (item for part in own for item in _items(part.get(entry))):
            found.setdefault(str(group["name"]), {}).setdefault(str(item["name"]), []).append(str(item["_"]))
    return found


def _taken_over(group: Item, folder: Path, kind: str) -> list[Item]:
    """Return the sets of this name in its `init_with` file, which JUBE searches beside the file that names it."""
    if "init_with" not in group:
        return []
    return [part for part in _items(_load(folder / group["init_with"]).get(kind)) if part["name"] == group["name"]]


def _load(path: Path) -> Item:
    content: Item = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _names(value: Any) -> list[str]:
    return [name.strip() for words in _items(value) for name in str(words).split(",")]
