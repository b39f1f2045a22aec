"""Whether a mutated log is read without an error, and states no rate that the log did not state."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.fixtures import fixtures
from support.mutate import HONEST, WILD

from nlp_bench.logs.dialect import FAILED
from nlp_bench.logs.reader import read_log
from nlp_bench.logs.record import Attempt, Log
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides, sizes_of
from nlp_bench.measure.throughput import measure_records
from nlp_bench.measure.window import conventions_of

TOLERANCE = 0.06
INVENTED = "states no such rate"
"""In what `problem` says where a rate came out of a log that does not state it: two torn halves that read as one line."""


@dataclass(frozen=True)
class Base:
    """A log whose rates are known."""

    name: str
    text: bytes
    overrides: Overrides
    slowest: float
    fastest: float

    def __repr__(self) -> str:
        """Its name: hypothesis prints what it was given, and warns of logs."""
        return self.name


def bases(folder: Path) -> list[Base]:
    """Every fixture with a case that has a number."""
    found = []
    for name, fixture in fixtures():
        case = next((case for case in fixture["case"] if case["outcome"] in {"VALID", "MEASURED"}), None)
        if case:
            found.append(_base(folder, name, fixture, case))
    return found


def _base(folder: Path, name: str, fixture: dict[str, Any], case: dict[str, Any]) -> Base:
    path = folder / "base.log"
    text = fixture["log"].lstrip("\n").encode()
    overrides = Overrides(**case.get("options", {}))
    path.write_bytes(text)
    dialect = read_log(str(path)).dialect
    lines, rates = text.splitlines(keepends=True), list(fixture.get("derivable", []))
    for end in range(1, len(lines) + 1):  # what a log says that ends early is no invention
        path.write_bytes(b"".join(lines[:end]))
        log = read_log(str(path))
        if log.dialect == dialect and not log.refusal:
            rates += [rate for attempt in log.attempts for rate in _rates(attempt, overrides, log)]
    return Base(name, text, overrides, min(rates), max(rates))


def _rates(attempt: Attempt, overrides: Overrides, log: Log) -> list[float]:
    """Return the rates of one start of the program: any of several may be the longest that a mutation leaves."""
    sizes = sizes_of(attempt, overrides)
    measured = measure_records(attempt.records, sizes, conventions_of(log, attempt))
    return [measured.steady, *(1 / measured.spans.seconds_per_token)] if measured else []


def problem(path: Path, base: Base, seed: int) -> str | None:
    """Mutate, read, and say what is wrong with the answer; None when nothing is."""
    dice = random.Random(seed)  # noqa: S311  # a repeatable test
    is_honest = dice.random() < 0.7
    text = base.text
    for _ in range(dice.choice((1, 1, 2, 3))):
        text = dice.choice(HONEST if is_honest else WILD)(text, dice) or text
    path.write_bytes(text)
    try:
        entries = measure_log(str(path), base.overrides)
        for entry in entries:
            entry.to_json(20_000_000)
    except Exception as error:  # noqa: BLE001  # the very thing that is looked for
        return f"{base.name} seed {seed}: {type(error).__name__}: {error}"
    if any(remark.startswith(FAILED) for entry in entries for remark in entry.remarks):
        return f"{base.name} seed {seed}: {[entry.remarks for entry in entries]}"
    rates = [entry.steady for entry in entries if entry.steady is not None]
    if any(not 0 < rate < float("inf") for rate in rates):
        return f"{base.name} seed {seed}: rates {rates}"
    low, high = base.slowest * (1 - TOLERANCE), base.fastest * (1 + TOLERANCE)
    if is_honest and any(not low <= rate <= high for rate in rates):
        return f"{base.name} seed {seed}: the log {INVENTED} as {rates}, but {low:.6g} to {high:.6g}"
    return None
