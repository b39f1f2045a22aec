"""Why not this one: the rules that a configuration breaks, or how far it is from the best, and which single change helps most."""

from dataclasses import replace
from typing import Any

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Configurations, Flags
from nlp_bench.plan.problem import AXES, ENDS, Fixed, Problem, Setting, recompute_of, searched_recompute, sizes_of
from nlp_bench.plan.ranking import Row, configuration, rows_of, with_one
from nlp_bench.plan.search import Search, broken_rules, layout_keys, search


@immutable
class Change:
    """One change to a configuration."""

    text: str  # what is changed: "vpp 1 -> 4"
    row: Row  # what it leads to


@immutable
class Why:
    """The explanation of one configuration."""

    problem: Problem  # the problem, without what the configuration fixes
    sizes: Setting
    broken: tuple[tuple[str, str], ...]  # rules that it breaks, with their arithmetic; empty: it is legal
    row: Row | None  # what is predicted of it; None where it is illegal
    rank: int | None  # its place among the layouts that fit; None where it does not fit or is illegal
    num_ranked: int
    best: Row | None  # the best that fits; None where none does
    changes: tuple[Change, ...]
    """Legal and fitting configurations that differ in one thing (of an illegal one: in as few as possible), fastest first."""

    @property
    def costs(self) -> dict[str, float]:
        """Seconds of steady time that each part costs more than in the best one, greatest first; what costs less is negative."""
        if self.row is None or self.best is None:
            return {}
        mine, best = self.row, self.best
        names = dict.fromkeys([*mine.shares, *best.shares])
        more = {
            name: mine.shares.get(name, 0) * mine.report_s - best.shares.get(name, 0) * best.report_s for name in names
        }
        return dict(sorted(more.items(), key=lambda part: -part[1]))


def explain(problem: Problem) -> Why:
    """Explain the model file's configuration with what the problem fixes."""
    wanted = target(problem)
    words = searched_recompute(problem.model.training.recompute, None, frozen=problem.frozen_recompute)
    free = replace(problem, fixed=Fixed(), recompute=tuple(dict.fromkeys([*words, wanted["recompute"]])))
    one = configuration(problem, wanted)
    broken = [*broken_rules(one), *_steps(problem, sizes_of(one, 0))]
    found = with_one(search(free), one)
    row = None if broken else rows_of(one, free)[0]
    best = next(iter(rows_of(found.space.legal, free, found.ranked[:1], is_ranked=True)), None)
    rank = found.rank(row.iteration_s) if row is not None and row.fits == "yes" else None
    return Why(
        problem=free,
        sizes=sizes_of(one, 0),
        broken=tuple(broken),
        row=row,
        rank=rank,
        num_ranked=len(found.ranked),
        best=best,
        changes=tuple(_changes(one, found, free, row)),
    )


def target(problem: Problem) -> dict[str, Any]:
    """Return the model file's sizes and switches with what the problem fixes."""
    given = {name: value for name, value in problem.fixed.given.items() if name != "gas"}
    wanted = {**problem.published, **given}
    wanted |= recompute_of(wanted["recompute"], problem.fixed)
    if "sequence_parallel" not in given or wanted["tp"] == 1:  # with one rank the trainer switches it off
        wanted["sequence_parallel"] = wanted["tp"] > 1
    if problem.fixed.gas is not None and problem.fixed.micro_batch_size is None:
        data = problem.num_gpus // max(1, wanted["tp"] * wanted["pp"] * wanted["cp"])
        micro = problem.global_batch_size // max(1, data * problem.fixed.gas)
        wanted["micro_batch_size"] = max(1, micro)
    return wanted


def _steps(problem: Problem, sizes: Setting) -> list[tuple[str, str]]:
    gas = problem.fixed.gas
    if gas is None or sizes.dp * sizes.micro_batch_size * gas == sizes.global_batch_size:
        return []
    product = f"{sizes.dp}*{sizes.micro_batch_size}*{gas} = {sizes.dp * sizes.micro_batch_size * gas}"
    broken = f"global_batch_size = {sizes.global_batch_size} is not dp*micro_batch_size*gas = {product}"
    return [("GAS", f"{broken}; leave --gas out")]


def _changes(one: Configurations, found: Search, problem: Problem, row: Row | None) -> list[Change]:
    """Return the best three single changes, each of another thing; of an illegal configuration those with the fewest changes."""
    legal, figures = found.space.legal, found.figures
    if not len(figures.fits):
        return []
    differs: dict[str, Flags] = {}
    for name, axis in AXES.items():
        other = getattr(legal.spread, axis.array) != getattr(one.spread, axis.array)[0]
        aspect = axis.aspect or name
        differs[aspect] = np.broadcast_to(other | differs.get(aspect, False), (len(legal),)).copy()
    differs["sequence_parallel"] &= (legal.spread.tensor > 1) & (one.spread.tensor > 1)  # with one rank it is off
    number = np.sum(list(differs.values()), axis=0)
    among = figures.fits & (number > 0)
    if not among.any():
        return []
    fewest = 1 if row is not None else int(number[among].min())
    among &= number == fewest
    if row is not None and row.fits == "yes":
        among &= figures.iteration_s < row.iteration_s * 0.999
    places = np.flatnonzero(among)
    places = places[np.argsort(figures.iteration_s[places], kind="stable")]
    aspects = np.argmax([flags[places] for flags in differs.values()], axis=0)
    kinds = aspects if fewest == 1 else layout_keys(legal.take(places))
    _, first = np.unique(kinds, return_index=True)
    chosen = places[np.sort(first)][:3]
    before = sizes_of(one, 0)
    return [Change(text=_text(before, each.sizes), row=each) for each in rows_of(legal, problem, chosen)]


def _text(before: Setting, after: Setting) -> str:
    sizes = {name: axis.text for name, axis in AXES.items() if not axis.values and name not in ENDS}
    pairs = [(text, getattr(before, name), getattr(after, name)) for name, text in sizes.items()]
    changes = [text.lower().format(f"{old} -> {new}") for text, old, new in pairs if old != new]
    ends = after.first_layers, after.last_layers
    if ends != (before.first_layers, before.last_layers):
        changes.append("first and last stage of {} and {} layers".format(*(number or "as many" for number in ends)))
    changes += [new for name, new in after.switches.items() if before.switches.get(name, new) != new]
    return ", ".join(changes)
