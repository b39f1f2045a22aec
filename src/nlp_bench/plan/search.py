"""All configurations of a model on a number of GPUs (products of divisors, no loop), the forecast of the legal ones and their order.

By predicted steady time among those that fit; and what is near where none is legal.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.layout import rules
from nlp_bench.layout.rules import METHODS, RECOMPUTE, RULES, Sizes, divisors
from nlp_bench.plan.configurations import Codes, Configurations, Flags, Numbers, Spread, taken
from nlp_bench.plan.forecast import forecast, peak_memory
from nlp_bench.plan.problem import AXES, SWITCHES, Columns, Fixed, Problem, recompute_of
from nlp_bench.plan.work import head_products, layer_core, layer_products, stage_layers

MOST_UNEVEN = 1.15  # largest ratio of the longest stage to the mean where layers do not divide evenly
MOST_LAYOUTS = 2**23  # more, of GPUs and batches with hundreds of divisors each, would fill a login node's memory
AT_ONCE = 2**19  # layouts that are judged at the same time; each takes some hundred bytes meanwhile


@immutable
class Space:
    """The legal configurations, and what was left out."""

    legal: Configurations  # N legal configurations
    num_layouts: int  # layouts (sizes without switches) that were tried; their parallel sizes divide the GPUs
    num_legal_layouts: int  # those that break no rule
    illegal: dict[str, int]  # layouts by the first rule that each breaks


def judge(c: Configurations) -> tuple[Flags, dict[str, int]]:
    """Return which of N configurations are legal, shape [N], and how many break each rule, of those that break none before it."""
    sizes, places, counts = _sizes(c), np.arange(len(c)), {}
    for rule in RULES:
        broken = np.broadcast_to(rule.broken(sizes), places.shape)
        if count := int(np.count_nonzero(broken)):
            counts[rule.code] = count
            kept = np.flatnonzero(~broken)
            sizes, places = taken(sizes, kept), places[kept]
    legal = np.zeros(len(c), dtype=np.bool_)
    legal[places] = True
    return legal, counts


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


def space(problem: Problem) -> Space:
    """Return every legal configuration of the problem."""
    layouts, parts, illegal = layouts_of(problem), [], Counter[str]()
    number = len(layouts["tp"])
    for first in range(0, max(number, 1), AT_ONCE):  # there may be millions
        some = {name: one[first : first + AT_ONCE] for name, one in layouts.items()}
        legal, counts = judge(plain(problem, some))
        parts.append(legal)
        illegal.update(counts)
    legal = np.concatenate(parts)
    kept = {name: values[legal] for name, values in layouts.items()}
    every = problem.configurations(_switched(problem, kept))
    return Space(
        legal=every.take(judge(every)[0]),
        num_layouts=number,
        num_legal_layouts=int(np.count_nonzero(legal)),
        illegal={rule.code: illegal[rule.code] for rule in RULES if illegal[rule.code]},
    )


def plain(problem: Problem, layouts: dict[str, Codes]) -> Configurations:
    """Return layouts with switches that break no rule, so that what is left are the rules of the sizes."""
    usual = {name: axis.usual for name, axis in SWITCHES.items()}
    return problem.configurations({**usual, **recompute_of("none"), "sequence_parallel": False, **layouts})


def layouts_of(problem: Problem) -> dict[str, Codes]:
    """Return every layout whose sizes divide the GPUs and whose micro batch divides the batch; raises UsageError for more than MOST_LAYOUTS."""
    fixed, gpus = problem.fixed, problem.num_gpus
    sizes = divisors(gpus)
    tensor = _only(sizes, fixed.tp)
    context = _only(sizes, fixed.cp)
    stages = _stage_variants(problem, _only([n for n in sizes if n <= float(problem.network.num_layers)], fixed.pp))
    micro = np.asarray(_only(divisors(problem.global_batch_size), fixed.micro_batch_size), dtype=np.int64)
    axes = (np.asarray(tensor, dtype=np.int64), np.asarray(context, dtype=np.int64), np.arange(len(stages)))
    t, c, k = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    whole = gpus % (t.astype(np.float64) * c * stages[k, 0]) == 0  # a product of whole numbers can pass 64 bits
    t, c, k = t[whole], c[whole], k[whole]
    if len(t) * len(micro) > MOST_LAYOUTS:
        raise UsageError(
            f"{len(t) * len(micro)} layouts divide {gpus} GPUs and a global batch of {problem.global_batch_size}, more than the "
            f"{MOST_LAYOUTS} that are searched; hold a size fixed: --tp, --pp, --vpp, --cp, --micro-batch-size"
        )
    names = ("pp", "vpp", "first_layers", "last_layers")
    found = {"tp": t, "cp": c, **dict(zip(names, stages[k].T, strict=True))}
    found = {name: np.repeat(values, len(micro)) for name, values in found.items()}
    found["micro_batch_size"] = np.tile(micro, len(t))
    if fixed.gas is not None:
        data = gpus // (found["tp"] * found["cp"] * found["pp"])
        right = data * found["micro_batch_size"] * fixed.gas == problem.global_batch_size
        found = {name: values[right] for name, values in found.items()}
    return found


def _only(values: list[int], fixed: int | None) -> list[int]:
    return values if fixed is None else [fixed]


def _stage_variants(problem: Problem, pipelines: list[int]) -> Codes:
    """Return rows of pipeline size, virtual stages, layers of the first and of the last stage (0: as the others)."""
    fixed, layers = problem.fixed, int(problem.network.num_layers)
    virtual = _only(divisors(layers), fixed.vpp)
    head = layers_of_head(problem)
    rows = [
        (pipeline, stages, first, last)
        for pipeline in pipelines
        for stages in virtual
        for first, last in _ends(layers, pipeline, stages, head, (fixed.first_layers, fixed.last_layers))
    ]
    return np.asarray(rows, dtype=np.int64).reshape(-1, 4)


def _ends(
    layers: int, pipeline: int, virtual: int, head: float, fixed: tuple[int | None, int | None]
) -> set[tuple[int, int]]:
    """Return the layers of the first and the last stage that are worth trying: 0 (as the others), or fewer than the others.

    Fewer is worth it where it makes the slowest stage faster (the output layer is worth `head` layers), or where the layers do not
    divide otherwise.
    """
    if fixed != (None, None):
        return {(fixed[0] or 0, fixed[1] or 0)}
    found = {(0, 0)}
    if pipeline == 1 or virtual * pipeline > layers:
        return found
    slowest = layers / pipeline + head if layers % (pipeline * virtual) == 0 else MOST_UNEVEN * layers / pipeline + head
    fewest = -(-layers // (pipeline * virtual)) * virtual
    for each in (fewest, fewest + virtual):
        missing = each * pipeline - layers
        for last in {each - missing, each - (missing // 2 // virtual * virtual)}:
            first = each - missing + each - last
            if 0 < last < each and 0 < first <= each and max(each, last + head) < slowest:
                found.add((0 if first == each else first, last))
    return found


def layers_of_head(problem: Problem) -> float:
    """Return how many layers the output layer is worth, by its matrix products."""
    one = problem.configurations({**problem.published, "tp": 1, **recompute_of("none")})
    return float(head_products(one) / (layer_products(one) + layer_core(one) / 2))


def _switched(problem: Problem, layouts: dict[str, Codes]) -> Columns:
    """Return each layout with every legal setting of the switches."""
    parts = []
    for sequence in (False, True):
        mask = (layouts["tp"] > 1) == sequence
        switches = _switches(problem, [True, False] if sequence else [False])
        rows = {name: np.repeat(values[mask], len(switches)) for name, values in layouts.items()}
        count = int(np.count_nonzero(mask))
        parts.append(rows | {name: np.tile(switches[:, place], count) for place, name in enumerate(SWITCHES)})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _switches(problem: Problem, sequence: Sequence[bool]) -> Codes:
    """Return rows of SWITCHES; with one value in `sequence` nothing is split along it, whatever is fixed."""
    held = problem.fixed.given
    free: dict[str, Sequence[Any]] = {
        name: [held[name]] if name in held else axis.values
        for name, axis in SWITCHES.items()
        if axis.aspect != "recompute"
    }
    if len(sequence) == 1 or "sequence_parallel" not in held:
        free["sequence_parallel"] = sequence
    rows = [
        {**again, **dict(zip(free, row, strict=True))}
        for again, *row in itertools.product(recomputes(problem), *free.values())
    ]
    # the rule "overlap", before each layout is multiplied by what it refuses
    kept = [
        row
        for row in rows
        if not row["overlap_param_gather"] or (row["distributed_optimizer"] and row["overlap_grad_reduce"])
    ]
    if not kept:
        raise UsageError(
            "plan: overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce, and one of them is held off; "
            "leave it free"
        )
    coded = [[axis.code(row[name]) for name, axis in SWITCHES.items()] for row in kept]
    return np.asarray(coded, dtype=np.int64).reshape(-1, len(SWITCHES))


def recomputes(problem: Problem) -> list[dict[str, Any]]:
    """Return the settings of recompute that every layout has; `with_parts` adds those of a number of layers."""
    found = [recompute_of(word, problem.fixed) for word in problem.recompute]
    selective = (Fixed(recompute_modules=modules) for modules in problem.searched_modules)
    return found + [recompute_of("selective", one) for one in selective]


REACH = 64  # numbers of nodes on each side that are tried
OF_BATCH = ("global batch", "micro-batch groups")


def refuse(problem: Problem) -> UsageError:
    """Return the refusal of a problem that no configuration solves: what is in the way, and what would work instead."""
    model, nodes = problem.model.name, problem.nodes
    where = f"{nodes} nodes x {problem.gpus_per_node} = {problem.num_gpus} GPUs"
    message = f"plan: no legal configuration of {model} on {where} with global batch {problem.global_batch_size}"
    if problem.fixed.given:
        message += f" and {problem.fixed.words}"
    return UsageError(f"{message}: {'; '.join([*_reasons(problem), *_remedies(problem)])}")


def _reasons(problem: Problem) -> list[str]:
    fixed = problem.fixed
    product = (fixed.tp or 1) * (fixed.pp or 1) * (fixed.cp or 1)
    if problem.num_gpus % product:
        words = "*".join(name for name in ("tp", "pp", "cp") if getattr(fixed, name))
        return [f"the number of GPUs = {problem.num_gpus} is not a multiple of {words} = {product}"]
    if fixed.micro_batch_size and problem.global_batch_size % fixed.micro_batch_size:
        return [f"the batch is not a multiple of the micro batch size {fixed.micro_batch_size}"]
    layouts, gas = layouts_of(problem), fixed.gas
    if not len(layouts["tp"]):
        return [f"no layout makes it as dp*micro_batch_size*{gas}" if gas else "no layout has these sizes together"]
    broken = broken_by_rule(plain(problem, layouts))
    if always := [name for name, where in broken.items() if where.all()]:
        return [f"every layout breaks the rule: {', '.join(always)}"]
    counts = {name: int(where.sum()) for name, where in broken.items() if where.any()}
    most = [f"{name} ({count})" for name, count in sorted(counts.items(), key=lambda item: -item[1])[:3]]
    return [f"each of {len(layouts['tp'])} layouts breaks a rule, most often {', '.join(most)}"]


def _remedies(problem: Problem) -> list[str]:
    found = []
    if batches := batches_nearby(problem):
        found.append(f"global batches that work on these nodes: {', '.join(map(str, batches))}")
    if nodes := nodes_nearby(problem):
        found.append(f"nodes that work with this batch: {', '.join(map(str, nodes))}")
    if problem.fixed.given:
        found.append("or leave a fixed size free")
    return found


def batches_nearby(problem: Problem) -> list[int]:
    """Return the nearest smaller and greater global batch that some layout divides on the problem's nodes."""
    free = replace(problem, global_batch_size=1, fixed=replace(problem.fixed, micro_batch_size=1, gas=None))
    layouts = layouts_of(free)
    if not len(layouts["tp"]):
        return []
    c = plain(free, layouts)
    legal = ~np.any([flags for code, flags in broken_by_rule(c).items() if code not in OF_BATCH], axis=0)
    wanted, gas, micro = problem.global_batch_size, problem.fixed.gas, problem.fixed.micro_batch_size
    interleaved = np.where(c.spread.virtual > 1, c.spread.pipeline, 1)
    if gas is not None:
        legal &= gas % interleaved == 0
    each = (c.spread.data * (interleaved if gas is None else gas))[legal] * (micro or 1)
    found = each if gas and micro else np.concatenate([np.floor(wanted / each) * each, np.ceil(wanted / each) * each])
    below, above = found[found < wanted].max(initial=0), found[found > wanted].min(initial=np.inf)
    return [int(value) for value in (below, above) if 0 < value < np.inf]


def nodes_nearby(problem: Problem) -> list[int]:
    """Return the nearest smaller and greater number of nodes that has a legal layout, as far as REACH."""
    ranges = (
        range(problem.nodes - 1, max(0, problem.nodes - REACH), -1),
        range(problem.nodes + 1, problem.nodes + REACH),
    )
    found = (next((n for n in near if has_layout(replace(problem, nodes=n))), None) for near in ranges)
    return [n for n in found if n is not None]


def has_layout(problem: Problem) -> bool:
    """Whether any layout is legal.

    Only no interleaving and micro batch 1 are tried: where another setting divides, these do too.
    """
    fixed = problem.fixed
    micro = fixed.micro_batch_size or (1 if fixed.gas is None else None)
    problem = replace(problem, fixed=replace(fixed, vpp=fixed.vpp or 1, micro_batch_size=micro))
    layouts = layouts_of(problem)
    return bool(len(layouts["tp"]) and judge(plain(problem, layouts))[0].any())


CHUNK = 16384  # configurations that are forecast at once: their arrays stay in a core's cache
MOST_KEYS = 2**62  # keys that a 64-bit integer holds
SAME = 1e-3  # relative difference of two times below which less memory decides
NEAR = 5e-3  # relative difference of two times below which a layout that is slower and needs more memory is dropped


@immutable
class Figures:
    """What is predicted of N configurations; arrays of shape [N]."""

    iteration_s: Numbers
    memory_bytes: Numbers  # peak of the fullest rank
    fits: Flags  # whether it surely fits
    tight: Flags  # whether it may fit


@immutable
class Search:
    """Every legal configuration with its figures, and the layouts in their order."""

    space: Space
    figures: Figures
    ranked: npt.NDArray[np.int64]  # positions of layouts that fit, fastest first; see `order`

    @property
    def num_fitting(self) -> int:
        """Configurations that surely fit."""
        return int(np.count_nonzero(self.figures.fits))

    @property
    def num_tight(self) -> int:
        """Configurations that may fit."""
        return int(np.count_nonzero(self.figures.tight))

    def rank(self, iteration_s: float) -> int:
        """Return the place, from 1, that an iteration of this length has, or would have, among the ranked layouts."""
        return 1 + int(np.searchsorted(self.figures.iteration_s[self.ranked], iteration_s * (1 - 1e-9)))

    def with_kept(self, kept: Flags) -> "Search":
        """Return the same search, in which those of `kept` (shape [N]) that fit are ranked whatever their twins."""
        places = np.union1d(self.ranked, np.flatnonzero(kept & self.figures.fits))
        return replace(self, ranked=places[np.argsort(self.figures.iteration_s[places], kind="stable")])

    def tight_and_faster(self, most: int) -> npt.NDArray[np.int64]:
        """Return positions of at most `most` layouts that may fit and would be faster than the best that does."""
        found = order(self.space.legal, self.figures, self.figures.tight)
        if len(self.ranked):
            found = found[self.figures.iteration_s[found] < self.figures.iteration_s[self.ranked[0]] * (1 - SAME)]
        return found[:most]


def figures_of(c: Configurations, problem: Problem) -> Figures:
    """Forecast N configurations a chunk at a time."""
    count = len(c)
    parts: list[dict[str, Any]] = []
    for start in range(0, max(count, 1), CHUNK):
        part = c.take(np.arange(start, min(count, start + CHUNK)))
        found, shape = forecast(part, problem.constants), (len(part),)
        arrays = {
            "iteration_s": found.seconds.total,
            "memory_bytes": found.memory.total,
            "fits": found.memory.fits,
            "tight": found.memory.tight,
        }
        parts.append({name: np.broadcast_to(values, shape) for name, values in arrays.items()})
    return Figures(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def with_parts(problem: Problem, found: Space) -> Space:
    """Return the space with a number of layers for each method of full recompute that is searched, where it makes a configuration fit.

    block: the fewest layers, for each costs time; uniform: the smallest groups, where each layer alone does not fit. Each is legal.
    """
    legal = found.legal
    full = np.flatnonzero(np.broadcast_to(legal.spread.recompute == RECOMPUTE.index("full"), (len(legal),)))
    if not problem.searched_methods or not len(full):
        return found
    whole = legal.take(full)
    parts = {"block": _fewest_layers, "uniform": _smallest_groups}
    for method in problem.searched_methods:
        number = parts[method](problem, whole)
        legal = _joined(legal, _partly(whole, method, number).take(np.flatnonzero(number)))
    return replace(found, legal=legal)


def _partly(c: Configurations, method: str, number: Numbers) -> Configurations:
    """Return configurations with full recompute of this method and number of layers."""
    code = np.full(len(c), METHODS.index(method))
    return replace(c, spread=replace(c.spread, recompute_method=code, recompute_num_layers=number))


def _fits(problem: Problem, c: Configurations) -> Flags:
    chunks = (c.take(np.arange(first, min(first + CHUNK, len(c)))) for first in range(0, len(c), CHUNK))
    fits = [np.broadcast_to(peak_memory(one, problem.constants).fits, (len(one),)) for one in chunks]
    return np.concatenate([np.zeros(0, dtype=np.bool_), *fits])


def _stage_ends(c: Configurations) -> tuple[Numbers, Numbers]:
    """Return the layers of the shortest and of the longest virtual stage."""
    held = np.stack([np.broadcast_to(layers / c.spread.virtual, (len(c),)) for layers in stage_layers(c)])
    return np.where(held > 0, held, np.inf).min(axis=0), held.max(axis=0)


def _fewest_layers(problem: Problem, c: Configurations) -> Numbers:
    """Return the fewest layers of each virtual stage whose recompute makes it fit; 0: none needed, or all of them."""
    shortest, longest = _stage_ends(c)
    below, number = np.full(len(c), -1.0), shortest.copy()  # the answer is above the one, and at most the other
    ends = _fits(problem, _partly(c, "block", number))
    while (apart := np.flatnonzero(ends & (number - below > 1))).size:
        middle = np.floor((below + number)[apart] / 2)
        fits = _fits(problem, _partly(c.take(apart), "block", middle))
        number[apart], below[apart] = np.where(fits, middle, number[apart]), np.where(fits, below[apart], middle)
    return np.where(ends & (number < longest), number, 0.0)


def _smallest_groups(problem: Problem, c: Configurations) -> Numbers:
    """Return the layers of the smallest groups that make it fit; 0: each layer alone does, or none."""
    found = np.zeros(len(c))
    open_ = np.flatnonzero(~_fits(problem, _partly(c, "uniform", np.ones(len(c)))))
    longest = _stage_ends(c)[1]
    for layers in range(2, int(longest.max()) + 1):
        some = c.take(open_)
        whole = np.ones(len(open_), dtype=np.bool_)
        for held in stage_layers(some):
            whole &= np.broadcast_to(held / some.spread.virtual % layers == 0, whole.shape)
        places = open_[whole]
        if not len(places):
            continue
        fits = _fits(problem, _partly(c.take(places), "uniform", np.full(len(places), float(layers))))
        found[places[fits]] = layers
        open_ = np.setdiff1d(open_, places[fits], assume_unique=True)
    return found


def _joined(c: Configurations, more: Configurations) -> Configurations:
    """Return the configurations of both, of which all but the spread is the same."""
    spread = {
        name: np.concatenate([one, getattr(more.spread, name)]) if one.ndim else one
        for name, one in vars(c.spread).items()
    }
    return replace(c, spread=Spread(**spread))


def order(c: Configurations, figures: Figures, among: Flags) -> npt.NDArray[np.int64]:
    """Return positions where `among` is true, fastest first, without twins, so that a table shows different layouts.

    Of each layout its best setting of the switches is kept, of layouts whose times differ by less than SAME the one that needs the
    least memory, and none that is slower by less than NEAR and needs more.
    """
    places = np.flatnonzero(among)
    seconds, keys = figures.iteration_s[places], layout_keys(c.take(places))
    steps = np.round(np.log(seconds) / SAME)  # times that differ by less are one
    best_first = np.lexsort((seconds, figures.memory_bytes[places], steps))
    for twins in (keys, steps):
        _, first = np.unique(twins[best_first], return_index=True)
        best_first = best_first[np.sort(first)]
    sorted_places = places[best_first[np.argsort(seconds[best_first], kind="stable")]]
    return sorted_places[_undominated(figures.iteration_s[sorted_places], figures.memory_bytes[sorted_places])]


def _undominated(seconds: Numbers, memory: Numbers) -> list[int]:
    """Return which of the rows, sorted by time, need less memory than every kept one that is faster by less than NEAR."""
    kept: list[int] = []
    for place, (time, needed) in enumerate(zip(seconds.tolist(), memory.tolist(), strict=True)):
        for other in reversed(kept):
            if seconds[other] < time * (1 - NEAR):
                kept.append(place)
                break
            if memory[other] <= needed:
                break
        else:
            kept.append(place)
    return kept


def layout_keys(c: Configurations) -> npt.NDArray[np.int64]:
    """Return one number for each layout: its sizes, whatever its switches, as digits of a mixed radix."""
    s, key, span = c.spread, np.zeros(len(c), dtype=np.int64), 1
    for array in (axis.array for axis in AXES.values() if not axis.values):
        digits = np.broadcast_to(getattr(s, array), (len(c),)).astype(np.int64)
        radix = int(digits.max(initial=0)) + 1
        if span * radix >= MOST_KEYS:  # renumber densely, so that the next digit fits
            key = np.unique(key, return_inverse=True)[1].reshape(-1)
            span = int(key.max(initial=0)) + 1
        key, span = key * radix + digits, span * radix
    return key


def search(problem: Problem) -> Search:
    """Forecast every legal configuration of the problem and rank the layouts that fit."""
    found = with_parts(problem, space(problem))
    figures = figures_of(found.legal, problem)
    return Search(space=found, figures=figures, ranked=order(found.legal, figures, figures.fits))
