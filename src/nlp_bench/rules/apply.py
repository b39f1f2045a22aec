"""Which rules a run is held to, and what a broken one does to its number.

A person asks for rules with `report --rules`, or for everybody with the variable NLP_BENCH_RULES, which other processes inherit.
Without either, a run of ours is held to the file of benchmark/rules that is the default of its model, and is marked only.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nlp_bench.errors import UsageError
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.workload import lookup
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.rules.judgement import NOT_SHOWN, VALID, Judgement

VARIABLE = "NLP_BENCH_RULES"
"""Name or path of the rules that a person asks for."""


@contextmanager
def asked_for(name: str | None) -> Iterator[None]:
    """Hold every run that is read meanwhile, here and in processes that are started, to the rules called `name`, if any.

    Raises UsageError at once where they cannot be read.
    """
    before = os.environ.get(VARIABLE)
    wanted = name if name is not None else before or None
    if wanted is None:
        yield
        return
    from nlp_bench.rules.file import find, forget, load  # noqa: PLC0415  # most reports need none

    forget()
    load(wanted)
    os.environ[VARIABLE] = str(find(wanted).resolve())
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def judged(entry: RunEntry, run: Mapping[str, Any] | None = None, ended: Mapping[str, Any] | None = None) -> RunEntry:
    """Return `entry` with the findings of its rules, and without its number where a broken rule takes it away.

    `run` is run.json and `ended` outcome.json of a run of ours. Raises UsageError where rules that were asked for cannot be read.
    """
    wanted = os.environ.get(VARIABLE)
    if entry.rules is not None or not (wanted or run):
        return entry
    from nlp_bench.rules.file import defaults_of, load  # noqa: PLC0415  # a log of somebody else needs none

    if wanted:
        return _marked(entry, load(wanted).judge(entry, run=run, ended=ended, is_asked=True))
    try:
        rules = defaults_of(str(lookup(run or {}, "model.name")))
    except UsageError as error:  # nobody asked: what was measured stands, and the fault is told
        return replace(entry, remarks=(*entry.remarks, f"the rules of its model could not be applied: {error}"))
    return _marked(entry, rules.judge(entry, run=run, ended=ended)) if rules else entry


def _marked(entry: RunEntry, judgement: Judgement) -> RunEntry:
    if not entry.outcome.has_number:
        return replace(entry, rules=judgement)  # it has no number, and a reason
    voiding = judgement.voiding()
    if not voiding:
        return replace(entry, rules=judgement, remarks=(*entry.remarks, judgement.note()))
    reasons = tuple(Reason("broken-rule", f"rule broken: {finding.reason()}") for finding in voiding)
    provenance = entry.provenance and replace(
        entry.provenance, window_first_record=None, window_last_record=None, arithmetic=None
    )
    return replace(
        entry,
        rules=judgement,
        outcome=Outcome.INVALID,
        throughput=None,
        published_tokens_per_second=None,
        reasons=(*reasons, *entry.reasons),
        remarks=(*entry.remarks, judgement.note(but=voiding)),
        provenance=provenance,
    )


def is_accepted(entry: RunEntry) -> bool:
    """Say whether the run keeps the rules that were asked for, with evidence for each; also where none were."""
    return entry.rules is None or not entry.rules.is_asked or entry.rules.result == VALID


def rules_lines(entry: RunEntry) -> Iterator[str]:
    """Yield the lines of an explanation: each rule, its word and its evidence; nothing without rules."""
    if entry.rules is None:
        return
    for word, text in entry.rules.lines():
        yield f"  {word:<{len(NOT_SHOWN)}} {text}"
