"""Which of many configurations the trainer takes: the one table of rules (`nlp_bench.layout.rules`), over arrays."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from nlp_bench.layout import rules
from nlp_bench.layout.rules import RULES, Sizes
from nlp_bench.plan.configurations import Configurations, Flags


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Which of N configurations are legal."""

    legal: Flags
    """Shape [N]."""
    counts: dict[str, int]
    """Illegal ones by the first rule that each breaks; rules that none breaks first are left out."""


def judge(c: Configurations) -> Verdicts:
    """Hold N configurations against every rule, each rule against those that break none before it."""
    sizes, places, counts = _sizes(c), np.arange(len(c)), {}
    for rule in RULES:
        broken = np.broadcast_to(rule.broken(sizes), places.shape)
        if count := int(np.count_nonzero(broken)):
            counts[rule.code] = count
            kept = np.flatnonzero(~broken)
            arrays = {name: value[kept] for name, value in vars(sizes).items() if np.ndim(value)}
            sizes, places = replace(sizes, **arrays), places[kept]
    legal = np.zeros(len(c), dtype=np.bool_)
    legal[places] = True
    return Verdicts(legal=legal, counts=counts)


def broken_by_rule(c: Configurations) -> dict[str, Flags]:
    """Return where each rule is broken, by its code; shape [N]."""
    return {code: np.broadcast_to(flags, (len(c),)) for code, flags in rules.judge(_sizes(c)).items()}


def broken_rules(c: Configurations) -> list[tuple[str, str]]:
    """Return code and arithmetic of each rule that one configuration (N = 1) breaks; empty: it is legal."""
    numbers = {name: np.asarray(value).reshape(-1)[0].item() for name, value in vars(_sizes(c)).items()}
    one = Sizes(**{name: value if isinstance(value, bool) else int(value) for name, value in numbers.items()})
    broken = rules.judge(one)
    return [(rule.code, rule.text(one)) for rule in RULES if broken[rule.code]]


def _sizes(c: Configurations) -> Sizes:
    """Return the sizes of configurations: Network and Spread have the same names."""
    known: dict[str, Any] = vars(c.network) | vars(c.spread)
    return Sizes(**{field.name: known[field.name] for field in fields(Sizes) if field.name in known})
