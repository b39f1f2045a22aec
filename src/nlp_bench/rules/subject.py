"""One run as the rules see it: its entry, run.json, outcome.json, and the model that it should have trained."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nlp_bench.config.model import Model
from nlp_bench.logs.record import NO_RECORDS, Records
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.findings import Evidence, Status, evidence
from nlp_bench.measure.workload import Setting, Value, Workload, lookup

_DUMP = ("num_layers", "hidden_size", "micro_batch_size")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One run."""

    entry: RunResult
    """What was measured, before any rule took the number away."""
    run: Mapping[str, Any] | None = None
    """run.json, None for a log of somebody else."""
    ended: Mapping[str, Any] | None = None
    """outcome.json, None for a log of somebody else."""
    model: Model | None = None
    """The model of the rules that it trained, by its name or its shape; None where nothing tells."""
    models: tuple[str, ...] = ()
    """All models of the rules."""

    @property
    def workload(self) -> Workload:
        """What run.json and the log state."""
        return self.entry.workload

    @property
    def records(self) -> Records:
        """Every logged interval; none where only their ends are kept."""
        whole = len(self.entry.records) == (self.entry.num_records or 0)
        return self.entry.records if whole else NO_RECORDS

    @property
    def named(self) -> str | None:
        """The model file that run.json names; what a table or a log calls a model is no name of a file."""
        found = self.workload.asked.get("model") if self.run is not None else None
        return str(found.value) if found else None

    def asked(self, name: str) -> Setting | None:
        """Return what run.json states."""
        if name == "train_iters" and self.run:
            value = lookup(self.run, "training.iterations")
            return Setting(value, "run.json") if isinstance(value, int) else None
        return self.workload.asked.get(name)

    def logged(self, name: str) -> Setting | None:
        """Return what the log prints."""
        found = self.workload.logged.get(name)
        if found is None and name == "recompute_granularity" and all(map(self.workload.logged.get, _DUMP)):
            return Setting("none", "the log's arguments name no recompute")  # printed as None
        return found

    def stated(self, name: str) -> list[Setting]:
        """Return what run.json and the log state, as far as they do."""
        return [found for found in (self.asked(name), self.logged(name)) if found]


def same(first: Value, second: Value) -> bool:
    """Say whether two statements of one setting mean the same: words without their case, numbers to 9 digits."""
    if isinstance(first, bool) or isinstance(second, bool):
        return str(first).lower() == str(second).lower()
    if isinstance(first, int | float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=1e-9)
    return str(first).lower() == str(second).lower()


def expect(name: str, settings: list[Setting], wanted: Value) -> list[Evidence]:
    """Return the evidence that each of `settings` is `wanted`: one for all that are, one for each that is not."""
    if not settings:
        return [evidence(name, Status.NOT_SHOWN, None, wanted)]
    wrong = [one for one in settings if not same(one.value, wanted)]
    if not wrong:
        places = " and ".join(one.source for one in settings)
        return [evidence(name, Status.PASS, settings[-1].value, wanted, places)]
    return [evidence(name, Status.FAIL, one.value, wanted, one.source) for one in wrong]
