"""A against B: every configuration that both have, or the refusal to compare what did different work; for people and for programs."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import filterfalse
from pathlib import Path
from typing import Any, NamedTuple

from nlp_bench.analysis.contrast import (
    MAX_EACH,
    USUAL_SCATTER,
    Gate,
    Method,
    Scatter,
    Statistic,
    Verdict,
    Word,
    statistic,
    worst,
)
from nlp_bench.analysis.repeats import (
    DATA,
    MACHINE,
    Observation,
    Pool,
    digest_of,
    doubt_lines,
    grouped,
    is_known,
    of_these,
    pool_lines,
    pooled,
    why_doubted,
)
from nlp_bench.errors import UsageError
from nlp_bench.escape import escaped_markdown, inert, one_line
from nlp_bench.immutable import immutable
from nlp_bench.measure.result import refuse_against_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import FREE, FROZEN, LOW_PRECISIONS, PARTS, Setting, sets_apart
from nlp_bench.outcome import Outcome
from nlp_bench.reason import texts
from nlp_bench.show.table import Column, as_markdown, as_text, columns_of, json_text, percentage

MODEL = ("num_layers", "hidden_size", "seq_length")  # a run that shows none of these does not show what was trained
_PLACE = tuple(dict.fromkeys((*MACHINE, "nodes", "gpus_per_node", "world_size")))
HISTORY = "history:"
NOT_SHOWN = "not shown"
_SHORT = {
    "global_batch_size": "batch", "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp",
    "micro_batch_size": "micro-batch",
}  # fmt: skip

Settings = Mapping[str, Setting]


class Difference(NamedTuple):
    """One name on which two configurations do not agree."""

    name: str  # as Megatron-LM names the argument
    a: Setting | None  # what A says, None where it does not
    b: Setting | None

    def to_json(self) -> dict[str, Any]:
        """Return it as an object."""
        a, b = ({"value": found.value, "from": found.source} if found else None for found in (self.a, self.b))
        return {"name": self.name, "a": a, "b": b}


@immutable
class Differences:
    """All differences, by what they mean."""

    workload: tuple[Difference, ...]  # frozen by the rules and not equal: the two did different work
    not_shown: tuple[Difference, ...]  # frozen and shown by one alone, or the model shown by neither
    free: tuple[Difference, ...]  # what may be tuned
    machine: tuple[Difference, ...]  # where they ran


def differences(a: Settings, b: Settings) -> Differences:
    """Compare what is known of two configurations, name by name."""

    def found(names: Iterable[str]) -> tuple[Difference, ...]:
        return tuple(Difference(name, a.get(name), b.get(name)) for name in names if not _agree_on(name, a, b))

    def both(name: str) -> bool:
        return name in a and name in b

    def is_shown(each: Difference) -> bool:
        """Say whether both show it: a log that shows its shape has no part, and one that shows its sizes no low precision, of which it says nothing."""
        is_low = each.name == "precision" and any(one and one.value in LOW_PRECISIONS for one in (each.a, each.b))
        return both(each.name) or (each.name in PARTS and both("num_layers")) or (is_low and both("seq_length"))

    frozen = found(FROZEN)
    has_model = both("model") and _agree_on("model", a, b)
    neither = [] if has_model else [name for name in MODEL if name not in a and name not in b]
    tuned = (*FREE, *sorted(filter(sets_apart, {**a, **b})), DATA)
    return Differences(
        workload=tuple(filter(is_shown, frozen)),
        not_shown=(*(Difference(name, None, None) for name in neither), *filterfalse(is_shown, frozen)),
        free=found(name for name in tuned if name not in _PLACE),
        machine=found(_PLACE),
    )


def _agree_on(name: str, a: Settings, b: Settings) -> bool:
    one, two = ((found.value if (found := side.get(name)) else None) for side in (a, b))
    return one == two or (isinstance(one, str) and isinstance(two, str) and one.casefold() == two.casefold())


def difference_columns(rows: Sequence[Difference]) -> list[Column]:
    """Return the table name, A, B, source."""
    lines = []
    for row in rows:
        sides = (("A", row.a), ("B", row.b))
        values = [(side, str(found.value) if found else NOT_SHOWN) for side, found in sides]
        sources = "; ".join(f"{side}: {found.source}" for side, found in sides if found)
        lines.append([("name", row.name), *values, ("source", sources)])
    return columns_of(lines, {"name", "A", "B", "source"})


def difference_table(rows: Sequence[Difference]) -> str:
    """Return the same for a terminal."""
    return "\n".join(f"  {line}" for line in as_text(difference_columns(rows)))


Pairs = list[tuple[Pool, Pool]]


def match(a: Sequence[Pool], b: Sequence[Pool]) -> tuple[Pairs, list[Pool], list[Pool]]:
    """Return the pairs, what only A has, and what only B has: the only configurations of both are a pair; of several, those that are equal, first on the same machine, then on any.

    A run that ended early states less than its partner: without a number it is paired with the only one that it nowhere
    contradicts.
    """
    if len(a) == 1 and len(b) == 1:
        return [(a[0], b[0])], [], []
    left_a, left_b = list(a), list(b)
    pairs: Pairs = []
    for without in ((), MACHINE):
        keys_a, keys_b = _unique(left_a, without), _unique(left_b, without)
        found = [(one, keys_b[key]) for key, one in keys_a.items() if key in keys_b]
        left_a = [pool for pool in left_a if all(pool is not one for one, _ in found)]
        left_b = [pool for pool in left_b if all(pool is not two for _, two in found)]
        pairs += found
    for two in [pool for pool in left_b if not pool.runs]:
        alike = [one for one in left_a if _contradict_nowhere(one, two)]
        if len(alike) == 1 and sum(_contradict_nowhere(alike[0], pool) for pool in left_b) == 1:
            pairs.append((alike[0], two))
            left_a = [pool for pool in left_a if pool is not alike[0]]
            left_b = [pool for pool in left_b if pool is not two]
    return pairs, left_a, left_b


def _contradict_nowhere(one: Pool, two: Pool) -> bool:
    """Return whether both configurations are known and agree on everything that both state."""
    stated = dict(two.identity)
    are_known = is_known(one.settings) and is_known(two.settings)
    return are_known and all(stated.get(name, value) == value for name, value in one.identity if name not in MACHINE)


def _unique(pools: Iterable[Pool], without: Sequence[str]) -> dict[object, Pool]:
    def key(pool: Pool) -> object:
        return tuple((name, value) for name, value in pool.identity if name not in without)

    return {key(one): one for one, *others in grouped(pools, key) if not others}


@immutable
class Reading:
    """How both sides are read, by the command line."""

    overrides: Overrides  # sizes that logs do not state
    trust: bool = False  # whether the user vouches that logs which state little are of one workload
    history: Path | None = None  # the file that `history:NAME` is looked up in, None for the default one
    allow_measured: bool = False  # whether logs that do not show how their run ended are repeats, too
    scatter: str | None = None  # repeated runs of A's machine, named as a side is

    def pooled(self, runs: Iterable[Observation]) -> list[Pool]:
        """Return the configurations of `runs`, without those on shared nodes where there are others."""
        return [pool.without_shared() for pool in pooled(runs, trust=self.trust, allow_measured=self.allow_measured)]


@immutable
class Side:
    """A or B."""

    label: str  # as it was named
    pools: tuple[Pool, ...]  # its configurations, also those whose runs have no number
    unreadable: tuple[Observation, ...] = ()  # what is no run of any known configuration
    repeats: tuple[Pool, ...] = ()  # further runs of the machine; for one of the history those before it
    near: str | None = (
        None  # of `history:last` without a run: what is nearest there, in brackets; None for every other side
    )

    @classmethod
    def of(
        cls, label: str, runs: Iterable[Observation], reading: Reading, *, repeats: Iterable[Observation] = ()
    ) -> "Side":
        """Pool `runs`, and `repeats` separately."""
        pools, lost = list[Pool](), list[Pool]()
        for pool in reading.pooled(runs):
            (pools if pool.runs or is_known(pool.settings) else lost).append(pool)
        unreadable = tuple(run for pool in lost for run in pool.without_number)
        further = tuple(reading.pooled(repeats))
        return cls(label=one_line(label), pools=tuple(pools), unreadable=unreadable, repeats=further)


def read_sides(a: str, b: str, reading: Reading) -> tuple[Side, Side]:
    """Read both sides; `history:last` means the runs before the other side's. Raises UsageError for one that cannot be read, is not in the history, or shows no scatter."""
    relative = [word for word in (a, b) if _is_relative(word)]
    if len(relative) > 1:
        raise UsageError(
            f"{a} and {b}: `last` means before the other side; give one of them as a path, a name or a number"
        )
    runs = {word: _read(word, reading, with_keys=bool(relative)) for word in (a, b) if word not in relative}
    first, second = (
        _before(word, runs[other], reading) if word in relative else Side.of(word, runs[word], reading)
        for word, other in ((a, b), (b, a))
    )
    word = reading.scatter
    if word is None:
        return first, second
    if _is_relative(word):
        raise UsageError(
            f"--scatter {word}: `last` means before the other side; give a path, a name or a configuration"
        )
    return with_scatter(first, _read(word, reading), reading, f"--scatter {word}"), second


def with_scatter(first: Side, runs: Iterable[Observation], reading: Reading, name: str) -> Side:
    """Return A with further runs of its machine, which show its scatter. Raises UsageError, beginning with `name`, where `runs` has no sound repeats of it."""
    fitting = [pool for pool in reading.pooled(runs) if any(_same_machine(pool, one) for one in first.pools)]
    if not any(pool.spread for pool in fitting):
        what = "two runs of one configuration on A's machine that differ"
        raise UsageError(f"{name} does not hold {what}; give a folder of repeats (repeats: 5 in JUBE) or history:NAME")
    if why := why_doubted(run for pool in fitting for run in pool.runs):
        raise UsageError(f"{name}: {why[0]}, and a doubted run shows no scatter: leave it out")
    return replace(first, repeats=(*first.repeats, *fitting))


def _same_machine(one: Pool, two: Pool) -> bool:
    """Return whether two configurations may have run on one machine: nothing that is known of theirs differs."""
    return all(_agree_on(name, one.settings, two.settings) for name in _PLACE)


def _is_relative(word: str) -> bool:
    return word.startswith(f"{HISTORY}last")


def _read(word: str, reading: Reading, *, with_keys: bool = False) -> list[Observation]:
    if word.startswith(HISTORY):
        from nlp_bench.analysis.store import named  # noqa: PLC0415  # paths need no database

        return named(reading.history, word.removeprefix(HISTORY))
    from nlp_bench.analysis.row import key_of  # noqa: PLC0415  # likewise
    from nlp_bench.inputs.sources import read_sources  # noqa: PLC0415  # heavy

    entries = read_sources([word], reading.overrides).entries
    refuse_against_log(entries)
    return [replace(Observation.of(entry), key=key_of(entry) if with_keys else None) for entry in entries]


def _before(word: str, others: list[Observation], reading: Reading) -> Side:
    from nlp_bench.analysis.store import before  # noqa: PLC0415  # paths need no database

    runs, earlier, near = before(reading.history, word.removeprefix(HISTORY), others)
    if not runs:
        return Side(label=f"{word} (no accepted run)", pools=(), near=near)
    which = runs[0].source if len(runs) == 1 else f"{len(runs)} runs, the latest {runs[-1].source}"
    return Side.of(f"{word} ({which})", runs, reading, repeats=earlier)


@immutable
class Compared:
    """One configuration."""

    name: str  # what it has beyond what all have in common
    a: Pool
    b: Pool
    differences: Differences
    statistic: Statistic | None  # what their runs show, None where one of them has no run with a number

    @cached_property
    def num_shared(self) -> int:
        """Runs of B that are a run of A, whole or cut: such a run says nothing about a difference."""
        return len(of_these(self.b.runs, (*self.a.runs, *self.a.copies)))


def _why_none(run: Observation) -> str:
    """Return how a run ended and why, in words."""
    why = "; ".join(run.reasons)
    return f"{run.source} is {run.outcome.value}{f': {why}' if why else ''}"


@immutable
class First:
    """Runs that the history has no baseline for."""

    runs: tuple[Observation, ...]

    @classmethod
    def of(cls, side: Side) -> "First":
        """Return all runs of a side, those without a number, too."""
        pooled = (run for pool in side.pools for run in (*pool.runs, *pool.without_number))
        return cls(runs=(*pooled, *side.unreadable))

    @property
    def is_baseline(self) -> bool:
        """Say whether one of them is a baseline by itself: it is VALID, and has a number."""
        return any(run.seconds_per_token and run.outcome is Outcome.VALID for run in self.runs)

    @property
    def sentence(self) -> str:
        """Say what they are, or why they are no baseline."""
        if self.is_baseline:
            return "nothing to compare yet, this run is the baseline"
        run = self.runs[-1]
        if run.seconds_per_token is None:
            return f"B has no number: {_why_none(run)}"
        how = f"nlp-bench history accept {shlex.quote(run.source)}"
        return f"nothing to compare yet, and B is no baseline by itself: {_why_none(run)}; if it is whole: {how}"


@immutable
class Comparison:
    """The comparison of all configurations of two sides."""

    a: Side  # the first side: the baseline
    b: Side
    common: str  # what all configurations of both sides have in common
    compared: tuple[Compared, ...]  # the configurations of both, none where the history has no baseline yet
    only_a: tuple[Pool, ...]
    only_b: tuple[Pool, ...]
    vouched: bool  # whether the user vouches for the same workload where the logs do not show it
    tokens: int
    gates: tuple[Gate, ...] = ()
    first: First | None = None  # where the history has no baseline yet: the runs that may be its first

    @property
    def has_vouched(self) -> bool:
        """Return whether the comparison rests on the user's word."""
        return self.vouched and any(found.differences.not_shown for found in self.compared)

    def word(self, gate: Gate) -> Word:
        """Return the verdict of `gate` on all configurations; one in which A has no number decides nothing."""
        words = [gate.word(found.statistic) for found in self.compared if found.a.runs]
        if self.first is not None:
            words = [Word.NOT_PROVEN if self.first.is_baseline else gate.word(None)]
        # A number that is now missing, a run that was not read, and one compared with itself must not look like a success.
        are_shared = any(found.num_shared for found in self.compared)
        is_open = self.only_a or self.a.unreadable or self.b.unreadable or are_shared
        return worst([*words, *([Word.NOT_PROVEN] if is_open else [])])

    @property
    def verdicts(self) -> dict[str, str]:
        """The word of the first gate on each run of B, by its key; empty where A is no part of the history before B, or there is no gate."""
        if not self.gates or not self.a.label.startswith(f"{HISTORY}last"):
            return {}
        pools = ((found.b, self.gates[0].word(found.statistic)) for found in self.compared if found.a.runs)
        every = ((run, word) for pool, word in pools for run in (*pool.runs, *pool.copies))
        return {run.key: word.value for run, word in every if run.key}

    @property
    def exit_code(self) -> int:
        """Return 1 when a gate stops or, without one, a configuration has no number on a side, else 0."""
        if self.gates:
            return int(any(gate.stops(self.word(gate)) for gate in self.gates))
        is_lost = self.first is not None and not self.first.is_baseline
        return int(is_lost or any(found.statistic is None for found in self.compared))


def compare(a: Side, b: Side, *, tokens: int, vouched: bool = False, gates: Sequence[Gate] = ()) -> Comparison:
    """Compare two sides. Raises UsageError, with the table of differences, for work that differs, or is not shown nor vouched for; and for an A without a number."""
    for side, other in ((a, b), (b, a)):
        if side.near is not None:
            return Comparison(
                a=a, b=b, common="", compared=(), only_a=(), only_b=(), vouched=vouched, tokens=tokens, gates=tuple(gates),
                first=First.of(other),
            )  # fmt: skip
    for name, side in (("A", a), ("B", b)):
        if not side.pools:
            why = "; ".join(f"{run.source}: {'; '.join(run.reasons)}" for run in side.unreadable[:3])
            raise UsageError(f"{name} {side.label} holds no run that could be compared: {why}")
    pairs, only_a, only_b = match(a.pools, b.pools)
    if not pairs:
        raise UsageError(_no_match(a, b))
    for one, two in pairs:
        # Where one side has no number there is no ratio: a run that ended early is a failure, no question of trust.
        _refuse(differences(one.settings, two.settings), vouched=vouched or not (one.runs and two.runs))
    if not any(one.runs for one, _ in pairs):
        raise UsageError(
            f"A {a.label} has no measured run with a number, so that there is nothing to compare with; see: nlp-bench report"
        )
    number = sum(1 for one, two in pairs if one.runs and two.runs)
    common, names = _names(pairs)
    return Comparison(
        a=a,
        b=b,
        common=common,
        compared=tuple(_compared(name, *pair, number, a.repeats) for name, pair in zip(names, pairs, strict=True)),
        only_a=tuple(only_a),
        only_b=tuple(only_b),
        vouched=vouched,
        tokens=tokens,
        gates=tuple(gates),
    )


def label(pool: Pool) -> str:
    """Return a short label of a configuration: the model, the machine, batch and layout."""
    return ", ".join(_parts(pool))


def _parts(pool: Pool) -> list[str]:
    value = {name: found.value for name, found in pool.settings.items()}
    has_shape = {"num_layers", "hidden_size"} <= set(value)
    model = value.get("model", f"{value['num_layers']} x {value['hidden_size']}" if has_shape else "a model")
    ranks = f"{value.get('num_gpus')} {'CPU' if value.get('accelerator') == 'cpu' else 'GPUs'}"
    layout = [f"{word} {value[name]}" for name, word in _SHORT.items() if name in value]
    return [str(model), *([ranks] if "num_gpus" in value else []), *layout]


def _names(pairs: Pairs) -> tuple[str, list[str]]:
    """Return what all configurations of both sides have in common, and what each has besides; a single one needs no name."""
    parts, others = ([_parts(pool) for pool in side] for side in zip(*pairs, strict=True))
    common = [part for part in parts[0] if all(part in words for words in (*parts, *others))]
    own = [", ".join(part for part in words if part not in common) for words in parts]
    return ", ".join(common), own if len(own) > 1 else [""]


def _compared(name: str, a: Pool, b: Pool, number: int, repeats: Sequence[Pool]) -> Compared:
    found = differences(a.settings, b.settings)
    if not (a.runs and b.runs):
        return Compared(name=name, a=a, b=b, differences=found, statistic=None)
    others = [pool for pool in repeats if pool.runs and _same_machine(a, pool)]
    compared = (*a.runs, *b.runs)
    rest = [replace(pool, runs=tuple(run for run in pool.runs if not of_these([run], compared))) for pool in others]
    known = Scatter.joined([scatter for pool in rest if (scatter := Scatter.of(pool))])
    shown = statistic(a, b, number, same_machine=_same_machine(a, b), known=known)
    return Compared(name=name, a=a, b=b, differences=found, statistic=shown)


def _refuse(found: Differences, *, vouched: bool) -> None:
    if found.workload:
        what = "A and B did different work: no ratio of their speeds means anything"
        raise UsageError(f"{what}\n{difference_table(found.workload)}\nCompare runs whose frozen parameters are equal.")
    if found.not_shown and not vouched:
        what = "A and B do not both show what they trained, so that nobody can see whether it was the same"
        how = "If you know that it was, say so with --same-workload; the result will carry that it rests on your word."
        raise UsageError(f"{what}\n{difference_table(found.not_shown)}\n{how}")


def _no_match(a: Side, b: Side) -> str:
    pairs = [(one, two) for one in a.pools for two in b.pools]
    found = [differences(one.settings, two.settings) for one, two in pairs]
    nearest = min(found, key=lambda f: len((*f.workload, *f.not_shown, *f.free, *f.machine)))
    counts = f"A has {len(a.pools)} configuration(s), B {len(b.pools)}, and none is in both"
    if not (nearest.workload or nearest.free or nearest.machine):
        lost = (
            "A log that states little stays alone, and so does one that is MEASURED; if these logs are repeats of one run, say so "
            "with --same-workload and, where logs are MEASURED, --allow-measured."
        )
        return f"{counts} exactly once\n{lost}"
    rows = (*nearest.workload, *nearest.not_shown, *nearest.free, *nearest.machine)
    how = "Give folders that hold one configuration each."
    return f"{counts}; the nearest two differ in\n{difference_table(rows)}\n{how}"


_SMALLEST_P = 1e-4
_MOST_NAMED = 3  # logs of several starts, and those that were ended before their last iteration, of each side


def _columns(found: Comparison) -> list[Column]:
    rows = []
    for pair in found.compared:
        shown, ratio = pair.statistic, pair.statistic.ratio if pair.statistic else None
        p_value = ratio.p_value if shown and ratio and shown.is_provable else None
        least = f"{_SMALLEST_P:.4f}"
        rows.append(
            [
                *([("configuration", pair.name)] if len(found.compared) > 1 else []),
                ("A tokens/s", _rate(pair.a)),
                ("B tokens/s", _rate(pair.b)),
                ("B/A", f"{shown.value:.4f}" if shown else ""),
                ("95 % interval", f"{ratio.low:.4f} to {ratio.high:.4f}" if ratio else ""),
                ("p", "" if p_value is None else f"{p_value:.4f}" if p_value >= _SMALLEST_P else f"< {least}"),
                ("B is", _verdict(shown) if shown else "without a number" if pair.a.runs else ""),
            ]
        )
    return columns_of(rows, {"configuration", "B is"})


def _rate(pool: Pool) -> str:
    if pool.tokens_per_second is None:
        return "no number"
    found = pool.estimate
    is_known = found and found.interval()  # without one the scatter is as large as the number
    scatter = f" +-{percentage(found.relative_half_width(), 1)}" if found and is_known else ""
    return f"{pool.tokens_per_second:.2f}{scatter} ({len(pool.runs)} run{'s' if len(pool.runs) > 1 else ''})"


def _verdict(shown: Statistic) -> str:
    is_other = shown.verdict in {Verdict.FASTER, Verdict.SLOWER}
    return f"{percentage(abs(shown.value - 1)) if is_other else ''} {shown.verdict.value}".lstrip()


def _notes(found: Comparison) -> list[str]:
    """Return the remarks, one line each; of several configurations each is named above its own lines, which begin with two spaces."""
    lines: list[str] = []
    if found.first is not None:
        near = (found.a.near or found.b.near or "") if found.first.is_baseline else ""
        lines.append(f"{found.first.sentence}{near}")
    for pair in found.compared:
        about = list(_about(pair, found))
        lines += about if len(found.compared) == 1 else [f"{pair.name}:", *(f"  {line}" for line in about)]
    for name, side, only in (("A", found.a, found.only_a), ("B", found.b, found.only_b)):
        lines += [f"only in {name}: {label(pool)} ({len(pool.runs)} run(s))" for pool in only]
        lines += [f"{name}: {run.source}: {'; '.join(run.reasons)}" for run in side.unreadable]
    if found.has_vouched:
        lines.append("The logs do not both show what was trained; that it was the same is your word (--same-workload).")
    return lines + [_gate_line(found, gate) for gate in found.gates]


def _about(pair: Compared, found: Comparison) -> Iterator[str]:
    if pair.statistic:
        yield _sentence(pair, pair.statistic)
        a, b = (time_to_report_s(found.tokens, pool.tokens_per_second) or 0.0 for pool in (pair.a, pair.b))
        yield f"time for {found.tokens:,} tokens: A {a:.2f} s, B {b:.2f} s"
        yield from _per_gpu(pair, pair.statistic)
    for name, pool in (("A", pair.a), ("B", pair.b)):
        failed = [] if pool.runs else [_why_none(run) for run in pool.without_number]
        stopped = [f"{run.source} is {run.outcome.value}: {run.stopped}" for run in pool.runs if run.stopped]
        some = (*_some(pool.start_lines, "have several starts"), *_some(stopped, "stopped early"))
        doubted = doubt_lines(pool.runs, pool.shared)
        yield from (f"{name}: {line}" for line in (*doubted, *pool_lines(pool), *pool.end_lines, *some, *failed))
    if (shown := pair.statistic) and shown.at_ends != 1:
        yield f"at the speeds at which the runs end B/A is {shown.value * shown.at_ends:.4f}"
    if pair.num_shared:
        yield f"{pair.num_shared} run(s) of B are runs of A, whole or cut: the same run is on both sides"
    for gate in found.gates:
        if not gate.equivalence and gate.is_unexpected(pair.statistic):
            yield f"B is faster by more than {gate.percent:g} %: check that it did the same work before you believe it"


def _per_gpu(pair: Compared, shown: Statistic) -> Iterator[str]:
    """Say what the ratio is per GPU, where both are known to have run on other numbers of them."""
    a, b = (pool.settings.get("num_gpus") or pool.settings.get("world_size") for pool in (pair.a, pair.b))
    if a and b and a.value != b.value and isinstance(a.value, int) and isinstance(b.value, int):
        ratio = shown.value * a.value / b.value
        how = f"{percentage(abs(ratio - 1))} {'faster' if ratio > 1 else 'slower'}"
        yield f"per GPU B/A is {ratio:.4f} (A on {a.value}, B on {b.value}): each of B's is {how}, which no gate judges"


def _some(lines: list[str], what: str) -> list[str]:
    more = [f"{len(lines) - _MOST_NAMED} more {what}"] if len(lines) > _MOST_NAMED else []
    return [*lines[:_MOST_NAMED], *more]


def _sentence(pair: Compared, shown: Statistic) -> str:
    if shown.ratio is None:
        return "no interval: the runs do not show how much they scatter, so nothing is said about the difference"
    percent = percentage(abs(shown.value - 1))
    if shown.verdict is Verdict.DOUBTED:
        words = f"by their numbers B is {percent} {'faster' if shown.value > 1 else 'slower'} than A"
        return f"{words}; not decided: {'; '.join(why_doubted((*pair.a.runs, *pair.b.runs)))}"
    if shown.verdict is Verdict.NEEDS_REPEATS:
        words = f"these two runs differ: B's is {percent} {'faster' if shown.value > 1 else 'slower'}"
        if shown.ratio.low <= 1 <= shown.ratio.high:
            words = "these two runs do not differ by more than their own scatter"
        return f"{words}. One run each proves nothing about the machines or settings: runs of the same differ too"
    # Which test it was, where it is not Student's t on the scatter between the compared runs themselves.
    by = "; A and B may scatter differently" if shown.method in {Method.WIDER, Method.WELCH} else ""
    if known := shown.known:
        freedom = f"({known.degrees:g} degrees of freedom)"
        others = f"other runs of the machine, which differ by {percentage(known.cv)} {freedom}"
        by += f"; with {others}" if shown.is_used else f"; without {others}: these scatter more"
    rest = f"({len(pair.a.runs)} and {len(pair.b.runs)} runs{by})"
    if shown.verdict is not Verdict.NONE_FOUND:
        return f"B is {percent} {shown.verdict.value} than A {rest}"
    hidden = max(shown.ratio.high / shown.value, shown.value / shown.ratio.low) - 1
    unseen = f"about {percentage(hidden, 1)}" if hidden < 1 else f"a factor of {1 + hidden:.3g}"
    return f"no difference found {rest}; one of less than {unseen} would not be seen"


def _gate_line(found: Comparison, gate: Gate) -> str:
    word, by = found.word(gate), f"by more than {gate.percent:g} %"
    if found.first is not None:
        return f"{'EQUIVALENCE' if gate.equivalence else 'GATE'} {word.value}: {found.first.sentence}"
    lost = [pair.name for pair in found.compared if pair.a.runs and not pair.b.runs]
    of = f" for {'; '.join(lost[:3])}{f' and {len(lost) - 3} more' if len(lost) > 3 else ''}" if any(lost) else ""
    meaning = {
        Word.PASS: f"it is proven that B is not slower than A {by}",
        Word.FAIL: f"B has no number{of}" if lost else f"it is proven that B is slower than A {by}",
        Word.EQUIVALENT: f"it is proven that neither is slower than the other {by}",
        Word.NOT_EQUIVALENT: f"B has no number{of}" if lost else f"it is proven that one is slower than the other {by}",
        Word.NOT_PROVEN: _why_open(found, gate),
    }
    name = "EQUIVALENCE" if gate.equivalence and word is Word.NOT_PROVEN else "" if gate.equivalence else "GATE"
    stops = "; --strict stops here" if gate.stops(word) and word is Word.NOT_PROVEN else ""
    return f"{f'{name} {word.value}'.strip()}: {meaning[word]}{stops}"


def _why_open(found: Comparison, gate: Gate) -> str:
    """Return why a gate is not proven, and how many runs would decide it."""
    if why := _why_nothing_proven(found):
        return why
    shown = [pair.statistic for pair in found.compared if pair.statistic]
    which = "one is slower than the other" if gate.equivalence else "B is slower"
    unsure = [one for one in shown if gate.word(one) is Word.NOT_PROVEN]
    if not unsure:
        return f"{len(found.only_a)} configuration(s) of A were not measured again"
    if any(gate.is_broken_by_starts(one) for one in unsure):
        by = f"by more than {gate.percent:g} %"
        return f"if the slowest start in each log counted, {which} {by}; give the starts as files of their own"
    if any(gate.is_broken_by_ends(one) for one in unsure):
        return f"at the speeds at which the runs end {which} by more than {gate.percent:g} %; longer runs have to show which speed lasts"
    numbers = [gate.runs_each(one) for one in unsure]
    known = [number for number in numbers if number is not None]
    enough = f"about {max(known)}" if len(known) == len(numbers) else f"more than {MAX_EACH}"
    if any(one.scatter is None for one in unsure):
        return f"one run each proves nothing; {enough} of each would decide where runs differ by {percentage(USUAL_SCATTER, 0)}, which nobody knows here"
    return f"the runs do not show whether {which} by more than {gate.percent:g} %; {enough} of each would, if they scatter as these do"


def _why_nothing_proven(found: Comparison) -> str | None:
    """Return which runs prove nothing however many there are, None where none does."""
    if why := why_doubted(run for pair in found.compared for pool in (pair.a, pair.b) for run in pool.runs):
        return "; ".join(why)
    if any(pair.num_shared for pair in found.compared):
        return "a run that is on both sides says nothing about a difference; leave it out of one of them"
    if any(pool.is_too_alike for pair in found.compared for pool in (pair.a, pair.b)):
        return "runs that are no independent repeats prove nothing; give runs of their own jobs"
    if left := [(name, run) for name, side in (("A", found.a), ("B", found.b)) for run in side.unreadable]:
        (name, run), number = left[0], f"{len(left)} runs are" if len(left) > 1 else "one run is"
        return f"{number} not in it ({name}: {run.source}{', ...' if len(left) > 1 else ''}), and may be slower; make it readable, or leave it out"
    return None


def _legend(found: Comparison) -> list[str]:
    number = sum(1 for pair in found.compared if pair.statistic)
    lines = [
        "tokens/s: the steady rate; of several runs the mean with its 95 % interval over runs, of one run within that run.",
        "B/A: rate of B / rate of A; B is faster or slower only where the whole interval is, and it is known what runs differ by.",
    ]
    if found.first is not None:
        return []
    bonferroni = f"The intervals of B/A hold together at 95 %: each is one at {percentage(1 - 0.05 / max(number, 1))} (Bonferroni)."
    return [*lines, bonferroni] if number > 1 else lines


def table(found: Comparison) -> str:
    """Return the comparison for a terminal."""
    sides = [f"A  {found.a.label}", f"B  {found.b.label}", *([f"   {found.common}"] if found.common else [])]
    parts = [[inert(line) for line in sides], as_text(_columns(found)) if found.compared else []]
    parts += [[f"What differs{which}, and may:", difference_table(changed)] for which, changed in _changes(found)]
    return "\n\n".join("\n".join(part) for part in (*parts, _notes(found), _legend(found)) if part) + "\n"


def _changes(found: Comparison) -> Iterator[tuple[str, Sequence[Difference]]]:
    for pair in found.compared:
        changed = (*pair.differences.free, *pair.differences.machine)
        if changed:
            yield (f" ({pair.name})" if pair.name else "", changed)


def _markdown(found: Comparison) -> str:
    head = f"**A** {escaped_markdown(found.a.label)}, **B** {escaped_markdown(found.b.label)}"
    lines = [head, *(["", escaped_markdown(found.common)] if found.common else [])]
    lines += ["", *as_markdown(_columns(found))] if found.compared else []
    for which, changed in _changes(found):
        lines += ["", f"What differs{escaped_markdown(which)}, and may:", "", *as_markdown(difference_columns(changed))]
    notes = [(note, note.lstrip(" ")) for note in _notes(found)]
    bullets = [f"{' ' * (len(note) - len(text))}- {escaped_markdown(text)}" for note, text in notes]
    return "\n".join([*lines, "", *bullets, "", *_legend(found)]) + "\n"


def record(found: Comparison) -> dict[str, Any]:
    """Return the record of nlp-bench/compare/1."""
    gates = {}
    for gate in found.gates:
        gates[_key(gate)] = {"percent": gate.percent, "strict": gate.strict, "verdict": found.word(gate).value}
    return {
        "schema": "nlp-bench/compare/1",
        "tokens": found.tokens,
        "a": _side(found.a),
        "b": _side(found.b),
        "workload_vouched_for": found.has_vouched,
        "comparisons": [_compared_json(pair, found) for pair in found.compared],
        "only_a": [_pool(pool, found.tokens) for pool in found.only_a],
        "only_b": [_pool(pool, found.tokens) for pool in found.only_b],
        "gate": gates.get("gate"),
        "equivalence": gates.get("equivalence"),
    }


def _key(gate: Gate) -> str:
    return "equivalence" if gate.equivalence else "gate"


def _side(side: Side) -> dict[str, Any]:
    unreadable = [{"source": run.source, "reasons": list(run.reasons)} for run in side.unreadable]
    return {"label": side.label, "unreadable": unreadable}


def _compared_json(pair: Compared, found: Comparison) -> dict[str, Any]:
    shown = pair.statistic
    kinds = ("free", "machine", "not_shown")
    record: dict[str, Any] = {
        "configuration": label(pair.a),
        "a": _pool(pair.a, found.tokens),
        "b": _pool(pair.b, found.tokens),
        "ratio": _ratio(shown) if shown else None,
        "differences": {kind: [row.to_json() for row in getattr(pair.differences, kind)] for kind in kinds},
    }
    for gate in found.gates:
        word = gate.word(shown) if pair.a.runs else None
        record[_key(gate)] = word.value if word else None
        is_open = shown and word is Word.NOT_PROVEN and not (shown.is_doubted or gate.is_broken(shown))
        record[f"{_key(gate)}_num_runs_each"] = gate.runs_each(shown) if shown and is_open else None
        if not gate.equivalence:
            record["unexpectedly_fast"] = gate.is_unexpected(shown)
    return record


def _ratio(shown: Statistic) -> dict[str, Any]:
    ratio, own, known = shown.ratio, shown.scatter, shown.known
    others = {"run_to_run_cv": known.cv, "degrees_of_freedom": known.degrees, "used": shown.is_used} if known else None
    return {
        "value": shown.value,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "level": shown.level,
        "p_value": ratio.p_value if ratio and shown.is_provable else None,
        "verdict": shown.verdict.value,
        "basis": shown.basis.value,
        "method": shown.method.value,
        "run_to_run_cv": own.cv if own else None,
        "degrees_of_freedom": own.degrees if own else None,
        "other_runs": others,
    }


def _pool(pool: Pool, tokens: int) -> dict[str, Any]:
    interval = pool.estimate.interval() if pool.estimate else None
    return {
        "identity": digest_of(pool.identity),
        "runs": [run.source for run in pool.runs],
        "without_number": [{"source": run.source, "outcome": run.outcome.value} for run in pool.without_number],
        "copies": [run.source for run in pool.copies],
        "tokens_per_second": pool.tokens_per_second,
        "ci95": list(interval) if interval else None,
        "time_to_report_s": time_to_report_s(tokens, pool.tokens_per_second),
        "run_to_run_cv": pool.run_to_run_cv,
        "within_run_cv": pool.within_run_cv,
        "outliers": [run.source for run in pool.outliers],
        "doubts": [
            {
                "source": run.source,
                "outcome": run.outcome.value,
                "doubts": texts(run.doubts),
                "codes": [each.code for each in run.doubts],
            }
            for run in (*pool.runs, *pool.shared)
            if run.doubts
        ],
        "remarks": [*pool_lines(pool), *pool.start_lines],
    }


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "table": table,
    "json": lambda found: json_text(record(found)),
    "markdown": _markdown,
}
