"""From a rule file, and those that it extends, to one checked set of rules."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from nlp_bench import schemas
from nlp_bench.config import catalog
from nlp_bench.config.model import Model
from nlp_bench.config.table import build, read_toml
from nlp_bench.errors import UsageError, nearest
from nlp_bench.escape import one_line
from nlp_bench.files import real
from nlp_bench.immutable import immutable
from nlp_bench.rules.checks import EqualsModel, known_setting
from nlp_bench.rules.rule import CHECKS, Rule, RuleSet, frozen_values

NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
Table = dict[str, Any]


@immutable
class Head:
    """The head of a rule file, above its rules."""

    title: str = ""
    source: str = ""  # the document that states them
    default: bool = False  # whether runs of its models are held to it without a request; not inherited
    extends: str = ""  # a rule file whose rules hold too, changed key by key: its name, or its path from this file
    models: tuple[str, ...] = ()  # models whose values are frozen: names of benchmark/models, or paths from this file
    free: tuple[str, ...] = ()  # settings that may be tuned; they are shown, and no rule may freeze them


@cache
def load(name: str) -> RuleSet:
    """Read the rules called `name` in benchmark/rules, or the file at `name`. Raises UsageError naming the file, the key, the value and the nearest known word."""
    try:
        return _load(find(name))
    except UsageError as error:
        raise UsageError(one_line(error)) from error  # a key of the file may hold anything


def find(name: str, folder: Path | None = None) -> Path:
    """Return the path of a rule file, relative where it is below this folder; one in `name` is relative to `folder`. Raises UsageError for a name that is not there."""
    if _is_path(name):
        path = real((folder or Path()) / name)
        return next((path.relative_to(one) for one in catalog.here() if path.is_relative_to(one)), path)
    return catalog.find("rules", name)


def _is_path(name: str) -> bool:
    return name.endswith(".toml") or "/" in name


@cache
def _load(path: Path) -> RuleSet:
    head, tables, files = _merged(path, ())
    if not head.models:
        raise UsageError(f'{path}: models: missing; name model files, as models = ["175"]')
    models = {model.name: model for model in (_model(path, name) for name in head.models)}
    rules = {rule: made for rule, table in tables.items() if (made := _rule(path, rule, table)).apply}
    if not rules:
        raise UsageError(
            f'{path}: rules: there is none; write at least one table [rules.NAME], or extends = "jupiter-nlp"'
        )
    for name in head.free:
        known_setting(f"{path}: free", name)
    for rule, made in rules.items():
        _fits(f"{path}: rules.{rule}", made, models, head.free)
    # The content of the rules, without comments and the order of keys.
    content = {"models": [asdict(one) for one in models.values()], "free": head.free, "rules": tables}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    return RuleSet(
        name=path.stem, title=head.title, models=models, free=head.free, rules=rules, digest=digest, files=files
    )


def _merged(path: Path, extending: tuple[Path, ...]) -> tuple[Head, dict[str, Table], tuple[Path, ...]]:
    """Return head and tables of the file at `path`, on top of what it extends, and the files of RuleSet.files."""
    if path in extending:
        raise UsageError(f"{path}: extends: leads back to itself; take the line out of one of the files")
    table = read_toml(path, schemas.RULES)
    tables = table.pop("rules", {})
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        raise UsageError(f"{path}: rules: expected tables [rules.NAME]")
    head = build(Head, table, f"{path}: rules file")
    folder = path.parent
    paths = (str(real(folder / name)) if name.endswith(".toml") else name for name in head.models)
    head = replace(head, models=tuple(paths))
    files = (real(path), *(Path(name) for name in head.models if name.endswith(".toml")))
    if not head.extends:
        return head, tables, files
    below, base, others = _merged(find(head.extends, folder), (*extending, path))
    merged = dict(base)
    for rule, changes in tables.items():
        if rule not in base and "check" not in changes:
            raise UsageError(f"{path}: rules.{rule}: unknown rule of {head.extends}{nearest(rule, list(base))}")
        changed = base.get(rule, {})
        is_another = "check" in changes and changes["check"] != changed.get("check")
        merged[rule] = changes if is_another else {**changed, **changes}
    inherited = {
        name: getattr(below, name) for name in ("title", "source", "models", "free") if not getattr(head, name)
    }
    return replace(head, **inherited), merged, files + others if _is_path(head.extends) else files


def _rule(path: Path, rule: str, table: Table) -> Rule:
    where = f"{path}: rules.{rule}"
    if not NAME.fullmatch(rule):
        raise UsageError(f"{where}: a rule's name has letters, digits, - and _ only")
    kind = table.get("check")
    if not isinstance(kind, str) or kind not in CHECKS:
        problem = "missing" if kind is None else f"{kind!r} is unknown"
        raise UsageError(f"{where}.check: {problem}{nearest(str(kind), list(CHECKS))}")
    made = build(CHECKS[kind], table, where)
    made.refuse_wrong(where)
    return made


def _fits(where: str, rule: Rule, models: Mapping[str, Model], free: tuple[str, ...]) -> None:
    """Refuse a rule that names an unknown model or value, or freezes what is free."""
    known = [*models, *(name for name in catalog.names("models") if name not in models)]
    for name in rule.models:
        if name not in known:
            raise UsageError(f"{where}.models: {name!r} is no model{nearest(name, known)}")
    if not isinstance(rule, EqualsModel):
        return
    for model in models.values():
        values = frozen_values(model, rule.section)
        for name in rule.without:
            if name not in values:
                raise UsageError(
                    f"{where}.without: {name!r} is no value of {rule.section}{nearest(name, list(values))}"
                )
        both = [name for name in rule.names(model) if name in free]
        if both:
            raise UsageError(
                f"{where}: {both[0]} is frozen here and named under free; add it to without, or take it out of free"
            )


def _model(path: Path, name: str) -> Model:
    # A user's model of that name changes no shipped rule.
    is_shipped = real(path).parent == catalog.shipped() / "benchmark" / "rules"
    try:
        return catalog.load_model(name, is_shipped=is_shipped)
    except UsageError as error:
        raise UsageError(f"{path}: models: {error}") from error


def defaults_of(model: str) -> RuleSet | None:
    """Return the rules that runs of `model` are held to without a request, if any. Raises UsageError where two files are the default, or one cannot be read."""
    names = [name for name, models in _default_models() if model in models]
    if len(names) > 1:
        raise UsageError(
            f"rules: {' and '.join(names)} are both default = true for model {model}; leave it in one of them"
        )
    return load(names[0]) if names else None


@cache
def _default_models() -> tuple[tuple[str, tuple[str, ...]], ...]:
    files = [name for name, table in catalog.rule_files() if table.get("default") is True]
    return tuple((name, tuple(load(name).models)) for name in files)


def forget() -> None:
    """Clear the caches, so that the files are read again."""
    load.cache_clear()
    _load.cache_clear()
    _default_models.cache_clear()
