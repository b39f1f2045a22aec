"""What a person supplied that a log does not show: every format of a report marks it, since the log alone does not prove it."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nlp_bench.logs.record import Attempt
from nlp_bench.measure.sizes import Overrides, Sizes, sizes_of, stated
from nlp_bench.reason import Reason

if TYPE_CHECKING:
    from nlp_bench.measure.entry import RunResult

_TOLERANCE = 0.03


@dataclass(frozen=True, kw_only=True)
class Supplied:
    """One value of the command line that the log does not show, or contradicts."""

    name: str
    """Name of the quantity: sequence_length, global_batch_size, num_gpus, gpu or precision; pattern for a description of its lines."""
    value: int | str
    """What was supplied."""
    logged: int | str | None
    """What the log says instead, None where it says nothing."""
    changes_rate: bool
    """Whether tokens per second would be another number, or none, without it."""

    @property
    def words(self) -> str:
        """The option with what the log says of it, in a few words."""
        said = "not in the log" if self.logged is None else f"the log says {self.logged}"
        return f"--{self.name.replace('_', '-')} {self.value} ({said})"

    @property
    def cell(self) -> str:
        """The same for a column: no spreadsheet takes it for a formula."""
        return f"{self.name}={self.value}" + ("" if self.logged is None else f" (log: {self.logged})")

    def to_json(self) -> dict[str, Any]:
        """Return all fields by name."""
        return asdict(self)


def supplied_sizes(attempt: Attempt, sizes: Sizes, overrides: Overrides) -> tuple[Supplied, ...]:
    """Return the sizes of `overrides` that `attempt` does not state in the same way; `sizes` are those that were used."""
    described = tuple(
        Supplied(name="pattern", value=text, logged=None, changes_rate=True) for text in overrides.pattern
    )
    given = {name: value for name, value in vars(overrides).items() if value and name != "pattern"}
    if not given:
        return described
    logged, _ = stated(attempt)
    return described + tuple(
        Supplied(
            name=name,
            value=value,
            logged=logged[name],
            changes_rate=not _same_rates(sizes, sizes_of(attempt, _without(overrides, name))),
        )
        for name, value in given.items()
        if logged[name] != value
    )


def _without(overrides: Overrides, name: str) -> Overrides:
    return Overrides(**{**vars(overrides), name: None})


def _same_rates(used: Sizes, without: Sizes) -> bool:
    return np.array_equal(used.tokens / used.elapsed_s, without.tokens / without.elapsed_s, equal_nan=True)


def supplied_accelerators(entry: "RunResult") -> tuple[Supplied, ...]:
    """Return what was said of the accelerators beside or against the log; no rate depends on it."""
    found = {name: (value, entry.workload.value(name)) for name, value in vars(entry.given).items() if value}
    return tuple(
        Supplied(name=name, value=value, logged=str(logged)[:80] if logged else None, changes_rate=False)
        for name, (value, logged) in found.items()
        if value != logged
    )


def against_log(supplied: tuple[Supplied, ...], attempt: Attempt, sizes: Sizes, overrides: Overrides) -> list[Reason]:
    """Return what the options say against the log: it changes the number, so it is a reason in every format."""
    said = [
        Reason(
            "option-against-log",
            f"the option --{each.name.replace('_', '-')} {each.value} is used although the log says {each.logged}",
        )
        for each in supplied
        if each.logged
    ]
    if said or replace(overrides, pattern=()) == Overrides() or not sizes.has_times:
        return said
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = sizes.tokens / stated(attempt)[1]
    ratio = np.nanmedian(ratios) if np.isfinite(ratios).any() else 1.0
    if abs(ratio - 1) <= _TOLERANCE:
        return []
    return [Reason("option-against-log", f"the options give {ratio:.4g} times the tokens that the log itself counts")]
