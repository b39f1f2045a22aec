"""One side of a comparison: all runs below a PATH, or of a name in the history, pooled by configuration."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from nlp_bench.compare.differences import same_machine
from nlp_bench.errors import UsageError
from nlp_bench.measure.observation import Observation, is_known
from nlp_bench.measure.repeats import Pool, pooled
from nlp_bench.measure.sizes import Overrides
from nlp_bench.show.escape import one_line

HISTORY = "history:"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command line says about reading both sides."""

    overrides: Overrides
    """Sizes that logs do not state."""
    trust: bool = False
    """Whether a person vouches that logs which state little are of one workload."""
    history: Path | None = None
    """The file that `history:NAME` is looked up in, None for the default one."""
    allow_measured: bool = False
    """Whether logs that do not show how their run ended count as repeats of each other, too."""
    scatter: str | None = None
    """Repeated runs of A's machine, as a side is named."""

    def pooled(self, runs: Iterable[Observation]) -> list[Pool]:
        """Return the configurations of `runs`."""
        return pooled(runs, trust=self.trust, allow_measured=self.allow_measured)

    @property
    def history_file(self) -> Path:
        """The history; the default one is looked for only where a side is from it."""
        from nlp_bench.history import default_file  # noqa: PLC0415  # logs need none

        return self.history or default_file()


@dataclass(frozen=True, kw_only=True)
class Side:
    """A or B."""

    label: str
    """As it was named."""
    pools: tuple[Pool, ...]
    """Its configurations, also those whose runs have no number."""
    unreadable: tuple[Observation, ...] = ()
    """What is no run of any known configuration."""
    repeats: tuple[Pool, ...] = ()
    """Further runs that show what runs of the machine differ by; of one run of the history those before it."""

    @classmethod
    def of(
        cls, label: str, runs: Iterable[Observation], wanted: Wanted, *, repeats: Iterable[Observation] = ()
    ) -> "Side":
        """Pool `runs`, and `repeats` apart."""
        pools = wanted.pooled(runs)
        lost = [pool for pool in pools if not pool.runs and not is_known(pool.settings)]
        return cls(
            label=one_line(label),
            pools=tuple(pool for pool in pools if pool not in lost),
            unreadable=tuple(run for pool in lost for run in pool.without_number),
            repeats=tuple(wanted.pooled(repeats)),
        )


def read_sides(a: str, b: str, wanted: Wanted) -> tuple[Side, Side]:
    """Read both sides; `history:last` means the runs before the other side's, of the same configuration.

    Raises UsageError when both are from the history by `last`, when one cannot be read, when a name is not in the history, and when
    `wanted.scatter` holds no repeats of A's machine.
    """
    first, second = _read_both(a, b, wanted)
    word = wanted.scatter
    if word is None:
        return first, second
    if _is_relative(word):
        raise UsageError(
            f"--scatter {word}: `last` means before the other side; give a path, a name or a configuration"
        )
    return with_scatter(first, _read(word, wanted), wanted, f"--scatter {word}"), second


def with_scatter(first: Side, runs: Iterable[Observation], wanted: Wanted, name: str) -> Side:
    """Return A with further runs of its machine, which show what runs differ by.

    Raises UsageError, beginning with `name`, where `runs` holds no repeats of A's machine.
    """
    found = wanted.pooled(runs)
    fitting = [pool for pool in found if any(same_machine(pool.settings, one.settings) for one in first.pools)]
    if not any(pool.spread for pool in fitting):
        what = "two runs of one configuration on A's machine that differ"
        raise UsageError(f"{name} does not hold {what}; give a folder of repeats (repeats: 5 in JUBE) or history:NAME")
    return replace(first, repeats=(*first.repeats, *fitting))


def _read_both(a: str, b: str, wanted: Wanted) -> tuple[Side, Side]:
    relative = [word for word in (a, b) if _is_relative(word)]
    if len(relative) > 1:
        raise UsageError(
            f"{a} and {b}: `last` means before the other side; give one of them as a path, a name or a number"
        )
    if _is_relative(a):
        second = _read(b, wanted, with_keys=True)
        return _before(a, second, wanted), Side.of(b, second, wanted)
    first = _read(a, wanted, with_keys=_is_relative(b))
    other = _before(b, first, wanted) if _is_relative(b) else Side.of(b, _read(b, wanted), wanted)
    return Side.of(a, first, wanted), other


def _is_relative(word: str) -> bool:
    return word.startswith(f"{HISTORY}last")


def _read(word: str, wanted: Wanted, *, with_keys: bool = False) -> list[Observation]:
    if word.startswith(HISTORY):
        from nlp_bench.history.select import named  # noqa: PLC0415  # paths need no database

        return named(wanted.history_file, word.removeprefix(HISTORY))
    from nlp_bench.history.key import keyed  # noqa: PLC0415  # likewise
    from nlp_bench.report.sources import read_sources  # noqa: PLC0415  # heavy

    entries = read_sources([word], wanted.overrides).entries
    return [keyed(entry) if with_keys else Observation.of(entry) for entry in entries]


def _before(word: str, others: list[Observation], wanted: Wanted) -> Side:
    from nlp_bench.history.select import before  # noqa: PLC0415  # paths need no database

    runs, earlier = before(wanted.history_file, word.removeprefix(HISTORY), others)
    which = runs[0].source if len(runs) == 1 else f"{len(runs)} runs, the latest {runs[-1].source}"
    return Side.of(f"{word} ({which})", runs, wanted, repeats=earlier)
