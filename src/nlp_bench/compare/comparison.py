"""A against B: every configuration that both have, or the refusal to compare what did different work."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nlp_bench.compare.differences import Difference, Differences, differences, same_machine
from nlp_bench.compare.gate import Gate, Word, worst
from nlp_bench.compare.match import match
from nlp_bench.compare.side import Side
from nlp_bench.compare.statistic import Scatter, Statistic, statistic
from nlp_bench.errors import UsageError
from nlp_bench.measure.observation import MACHINE
from nlp_bench.measure.repeats import Pool
from nlp_bench.show.grid import Column, as_text


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One configuration."""

    a: Pool
    """A's runs."""
    b: Pool
    """B's runs."""
    differences: Differences
    """In what they differ."""
    statistic: Statistic | None
    """What their runs show, None where one of them has no run with a number."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All of it."""

    a: Side
    """The first side: the baseline."""
    b: Side
    """The second side."""
    compared: tuple[Compared, ...]
    """The configurations of both, at least one."""
    only_a: tuple[Pool, ...]
    """What B does not have."""
    only_b: tuple[Pool, ...]
    """What A does not have."""
    vouched: bool
    """Whether a person says that the workload is the same where the logs do not show it."""
    tokens: int
    """Tokens of the hypothetical training."""
    gates: tuple[Gate, ...] = ()
    """What it is asked."""

    @property
    def has_vouched(self) -> bool:
        """Say whether the comparison rests on somebody's word."""
        return self.vouched and any(found.differences.not_shown for found in self.compared)

    def word(self, gate: Gate) -> Word:
        """Return what `gate` says of all configurations; one in which A has no number that B could miss decides nothing."""
        words = [gate.word(found.statistic) for found in self.compared if found.a.runs]
        # What was measured before and is not now must not look like a success.
        return worst([*words, *([Word.NOT_PROVEN] if self.only_a else [])])

    @property
    def exit_code(self) -> int:
        """Return 1 when a gate stops or, without one, a configuration has no number on a side, else 0."""
        if self.gates:
            return int(any(gate.stops(self.word(gate)) for gate in self.gates))
        return int(any(found.statistic is None for found in self.compared))


def compare(a: Side, b: Side, *, tokens: int, vouched: bool = False, gates: Sequence[Gate] = ()) -> Comparison:
    """Compare two sides.

    Raises UsageError, with the table of differences, when they did different work, when the logs do not show whether they did and
    nobody vouches for it, and when nothing of A has a number.
    """
    for name, side in (("A", a), ("B", b)):
        if not side.pools:
            why = "; ".join(f"{run.source}: {'; '.join(run.reasons)}" for run in side.unreadable[:3])
            raise UsageError(f"{name} {side.label} holds no run that could be compared: {why}")
    found = match(a.pools, b.pools)
    if not found.pairs:
        raise UsageError(_no_match(a, b))
    for one, two in found.pairs:
        # Where one side has no number nobody divides: a run that ended before it said much is a failure, no question of trust.
        _refuse(differences(one.settings, two.settings), vouched=vouched or not (one.runs and two.runs))
    if not any(one.runs for one, _ in found.pairs):
        raise UsageError(
            f"A {a.label} has no measured run with a number, so that there is nothing to compare with; see: nlp-bench report"
        )
    number = sum(1 for one, two in found.pairs if one.runs and two.runs)
    return Comparison(
        a=a,
        b=b,
        compared=tuple(_compared(one, two, number, a.repeats) for one, two in found.pairs),
        only_a=found.only_a,
        only_b=found.only_b,
        vouched=vouched,
        tokens=tokens,
        gates=tuple(gates),
    )


def _compared(a: Pool, b: Pool, number: int, repeats: Sequence[Pool]) -> Compared:
    found = differences(a.settings, b.settings)
    if not (a.runs and b.runs):
        return Compared(a=a, b=b, differences=found, statistic=None)
    own = {run.estimate for run in (*a.runs, *b.runs)}
    others = [pool for pool in repeats if pool.runs and same_machine(a.settings, pool.settings)]
    rest = [replace(pool, runs=tuple(run for run in pool.runs if run.estimate not in own)) for pool in others]
    known = Scatter.joined([scatter for pool in rest if (scatter := Scatter.of(pool))])
    shown = statistic(a, b, number, same_machine=same_machine(a.settings, b.settings), known=known)
    return Compared(a=a, b=b, differences=found, statistic=shown)


def _refuse(found: Differences, *, vouched: bool) -> None:
    if found.workload:
        what = "A and B did different work: no ratio of their speeds means anything"
        raise UsageError(f"{what}\n{difference_table(found.workload)}\nCompare runs whose frozen parameters are equal.")
    if found.not_shown and not vouched:
        what = "A and B do not both show what they trained, so that nobody can see whether it was the same"
        remedy = (
            "If you know that it was, say so with --same-workload; the result will carry that it rests on your word."
        )
        raise UsageError(f"{what}\n{difference_table(found.not_shown)}\n{remedy}")


def _no_match(a: Side, b: Side) -> str:
    pairs = [(one, two) for one in a.pools for two in b.pools]
    nearest = min((differences(one.settings, two.settings) for one, two in pairs), key=lambda found: found.number)
    counts = f"A has {len(a.pools)} configuration(s), B {len(b.pools)}, and none is in both"
    rows = (*nearest.workload, *nearest.not_shown, *nearest.free, *nearest.machine)
    if not rows:
        lost = (
            "A log that states little stays alone, and so does one that is MEASURED; if these logs are repeats of one run, say so "
            "with --same-workload or --allow-measured."
        )
        return f"{counts} once\n{lost}"
    return (
        f"{counts}; the nearest two differ in\n{difference_table(rows)}\nGive folders that hold one configuration each."
    )


def difference_columns(rows: Sequence[Difference]) -> list[Column]:
    """Return the table name, A, B, source."""
    cells = zip(*(row.cells() for row in rows), strict=True)
    headings = ("name", "A", "B", "source")
    return [
        Column(heading=heading, cells=column, is_text=True) for heading, column in zip(headings, cells, strict=True)
    ]


def difference_table(rows: Sequence[Difference]) -> str:
    """Return the same for a terminal."""
    return "\n".join(f"  {line}" for line in as_text(difference_columns(rows)))


def label(pool: Pool) -> str:
    """Return a configuration in a few words: the model, the machine, batch and layout."""
    value = {name: found.value for name, found in pool.settings.items()}
    shape = (
        f"{value['num_layers']} x {value['hidden_size']}" if {"num_layers", "hidden_size"} <= set(value) else "a model"
    )
    gpus = (
        f"{value['num_gpus']} {'CPU' if value.get('accelerator') == 'cpu' else 'GPUs'}" if "num_gpus" in value else ""
    )
    short = {
        "global_batch_size": "batch", "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp",
        "micro_batch_size": "micro-batch",
    }  # fmt: skip
    layout = [f"{word} {value[name]}" for name, word in short.items() if name in value]
    return ", ".join([str(value.get("model", shape)), *([gpus] if gpus else []), *layout])


def machine_of(pool: Pool) -> str:
    """Return where it ran, as far as it is known."""
    return ", ".join(str(pool.settings[name].value) for name in MACHINE if name in pool.settings)
