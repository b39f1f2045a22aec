"""What is exported: valid runs with a number, and the records next to their logs; all others are refused with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from nlp_bench.errors import UsageError
from nlp_bench.evidence.derive import measure
from nlp_bench.evidence.manifest import LOG, RUN_FOLDER
from nlp_bench.files import read_object
from nlp_bench.immutable import immutable
from nlp_bench.inputs.find import Kind, find
from nlp_bench.measure.result import RunResult, refuse_against_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import lookup
from nlp_bench.outcome import Outcome
from nlp_bench.rules.apply import wanted
from nlp_bench.walk import MACHINE

Record = Mapping[str, Any]


@immutable
class Subject:
    """One run to be exported."""

    entry: RunResult  # the run: valid, with a number and with its samples
    tokens: int
    run: Record = field(default_factory=dict)  # run.json; {} for a log of somebody else
    environment: Record = field(default_factory=dict)
    ended: Record = field(default_factory=dict)
    machine: Record = field(default_factory=dict)  # the record of the first node below machine/

    def text(self, *places: str) -> str:
        """Return the first of the dotted places (`run.a.b`; of run, environment, ended, machine or workload) that is known, as text; "" where none is."""
        for place in places:
            source, _, dotted = place.partition(".")
            value = self.entry.workload.value(dotted) if source == "workload" else lookup(getattr(self, source), dotted)
            if value is not None and not isinstance(value, dict | list) and value != "":
                return str(value)
        return ""

    @property
    def is_cpu(self) -> bool:
        """Whether CPU ranks ran and no accelerators."""
        return self.text("run.system.accelerator", "workload.accelerator") == "cpu"

    @property
    def window(self) -> str:
        """The counted iterations, "" where none are."""
        found = self.entry.throughput.window if self.entry.throughput else None
        return f"iterations {found.first_iteration} to {found.last_iteration}" if found else ""

    @property
    def rate(self) -> tuple[str, float]:
        """Name and tokens per second of the rate that counts: steady where there is one, else reference."""
        if self.entry.steady is not None:
            return "steady", self.entry.steady
        return "reference", self.entry.reference or 0.0

    @property
    def time_s(self) -> float:
        """Seconds that the hypothetical training takes at that rate."""
        return time_to_report_s(self.tokens, self.rate[1]) or 0.0


def subjects(
    paths: Sequence[str], overrides: Overrides, tokens: int, *, allow_measured: bool = False
) -> tuple[list[Subject], list[str]]:
    """Return the valid runs of `paths` (with `allow_measured` also the MEASURED ones), and why each other one is refused. Raises UsageError for a PATH that cannot be read."""
    found: list[Subject] = []
    refused: list[str] = []
    rules = wanted(None)
    for item in (item for group in find(paths) for item in group.items):
        if item.kind is Kind.BROKEN:
            raise UsageError(item.problem)
        if item.kind is Kind.STEP:
            refused.append(item.problem)
            continue
        if item.kind is Kind.TABLE:
            refused.append(f"{item.path}: a table of published results has no runs to export")
            continue
        is_ours = item.kind is Kind.RUN
        place, kind = (item.folder, RUN_FOLDER) if is_ours else (Path(item.path), LOG)
        entries, _ = measure(place, kind, overrides, rules=rules)
        records: dict[str, Record] = {}
        if is_ours:
            nodes = sorted((item.folder / MACHINE).glob("*.json"))
            files = {"run": "run.json", "environment": "environment.json", "ended": "outcome.json"}
            records = {name: read_object(item.folder / file) for name, file in files.items()}
            records["machine"] = read_object(nodes[0]) if nodes else {}
        refuse_against_log(entries)
        for entry in entries:
            if entry.throughput is not None and (allow_measured or entry.outcome is Outcome.VALID):
                found.append(Subject(entry=entry, tokens=tokens, **records))
            elif not item.is_found or entry.dialect:
                why = "a run without a number is not exported"
                if entry.has_number:
                    why = "a log that does not show that its run ended well is exported with --allow-measured only"
                reasons = "; ".join(entry.reason_texts[:2])
                refused.append(f"{entry.source}: {entry.outcome.value}, {why}: {reasons}")
    return found, refused
