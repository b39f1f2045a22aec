"""Which rules a run is held to, and what a broken one does to its number.

The user requests rules with `report --rules`, or for every command with the variable NLP_BENCH_RULES (`wanted`).
Without either, a run of ours is held to the file of benchmark/rules that is the default of its model, and is marked only.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.errors import UsageError
from nlp_bench.files import real, sha256_of
from nlp_bench.logs.reader import Progress
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.judgement import VALID, Judgement
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.workload import lookup
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason

if TYPE_CHECKING:
    from nlp_bench.measure.folder import FolderMeasurement

VARIABLE = "NLP_BENCH_RULES"  # name or path of the rules that the user requests


def wanted(name: str | None) -> str | None:
    """Return the path of the rules called `name`, else of those in the variable, read anew; None where none are requested. Raises UsageError where they cannot be read."""
    name = name if name is not None else os.environ.get(VARIABLE) or None
    if name is None:
        return None
    from nlp_bench.config import catalog  # noqa: PLC0415  # as below
    from nlp_bench.rules.file import find, forget, load  # noqa: PLC0415  # most reports need none

    forget()
    load(name)
    path = real(find(name))
    published = catalog.shipped() / "benchmark" / "rules" / path.name
    if not name.endswith(".toml") and published.is_file() and sha256_of(published) != sha256_of(path):
        print(f"nlp-bench: rules {name} are those of {path}, not the ones that nlp-bench comes with", file=sys.stderr)
    return str(path)


def judged(
    entry: RunResult,
    run: Mapping[str, Any] | None = None,
    ended: Mapping[str, Any] | None = None,
    *,
    rules: str | None = None,
) -> RunResult:
    """Return `entry` with the findings of its rules, and without its number where a broken rule voids it.

    `run` is run.json and `ended` outcome.json of a run of ours; `rules` are those that the user requests (`wanted`), None for the default
    of the run's model. Raises UsageError where requested rules cannot be read.
    """
    if entry.rules is not None or not (rules or run):
        return entry
    from nlp_bench.rules.file import defaults_of, load  # noqa: PLC0415  # a log of somebody else needs none

    if rules:
        return _marked(entry, load(rules).judge(entry, run=run, ended=ended, is_asked=True))
    try:
        default = defaults_of(str(lookup(run or {}, "model.name")))
    except UsageError as error:  # not requested: what was measured stays valid, and the error is a remark
        return replace(entry, remarks=(*entry.remarks, f"the rules of its model could not be applied: {error}"))
    return _marked(entry, default.judge(entry, run=run, ended=ended)) if default else entry


def measured_log(
    path: str, overrides: Overrides, progress: Progress | None = None, *, rules: str | None = None
) -> list[RunResult]:
    """Measure a log (`measure.foreign`) and hold its runs to `rules`, if any."""
    return measure_log(path, overrides, progress, partial(judged, rules=rules))


def measured_folder(
    folder: Path,
    source: str,
    *,
    ended: dict[str, Any] | None = None,
    redacted: frozenset[str] = frozenset(),
    rules: str | None = None,
) -> "FolderMeasurement":
    """Measure a run folder (`measure.folder`) and hold the run to `rules`, else to the default of its model."""
    from nlp_bench.measure.folder import measure_folder  # noqa: PLC0415  # logs of others do not need it

    return measure_folder(folder, source, ended=ended, redacted=redacted, judge=partial(judged, rules=rules))


def _marked(entry: RunResult, judgement: Judgement) -> RunResult:
    if not entry.outcome.has_number:
        return replace(entry, rules=judgement)  # it has no number, and a reason
    voiding = judgement.voiding()
    if not voiding:
        return replace(entry, rules=judgement, remarks=(*entry.remarks, judgement.note()))
    reasons = tuple(Reason("broken-rule", f"rule broken: {finding.reason()}") for finding in voiding)
    remarks = (*entry.remarks, judgement.note(but=voiding))
    return replace(entry.without_number(Outcome.INVALID, *reasons), rules=judgement, remarks=remarks)


def is_accepted(entry: RunResult) -> bool:
    """Return whether the run keeps the requested rules, with evidence for each; True where none were requested."""
    return entry.rules is None or not entry.rules.is_asked or entry.rules.result == VALID
