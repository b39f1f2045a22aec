"""The numbers of a bundle, out of its logs alone: the same way when it is made and when it is verified."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlp_bench.bundle.manifest import RUN_FOLDER, Member, Options, redacted
from nlp_bench.errors import NlpBenchError
from nlp_bench.inputs.read import with_quotes
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.result import result_record
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.report.explain import explain
from nlp_bench.report.formats import table
from nlp_bench.report.table import Report
from nlp_bench.rules.apply import measured_folder, measured_log, wanted
from nlp_bench.show.escape import one_line

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class Derived:
    """What follows from the logs."""

    record: dict[str, Any]
    """Object of nlp-bench/report/1, as JSON gives it back."""
    text: str
    """The table and the explanation of each number."""
    results: dict[str, dict[str, Any]]
    """By the path of a run folder, its record of nlp-bench/result/1; missing where it cannot be measured."""
    entries: Sequence[tuple[RunEntry, ...]]
    """For each member its runs, with all samples."""
    numbers: Sequence[list[dict[str, Any]]]
    """For each member the `numbers` of the manifest."""


def derive(
    folder: Path, members: Sequence[Member], options: Options, redactions: Sequence[Mapping[str, Any]]
) -> Derived:
    """Measure every member of the bundle that lies unpacked in `folder`; `redactions` are those of its manifest.

    A run that cannot be measured is an entry without a number; nothing in the answer depends on where `folder` is.
    """
    with tempfile.TemporaryDirectory(prefix="nlp-bench-derive-") as private:
        # A name that stands in no log: it is taken out of every text again.
        place = Path(private) / "bundle"
        place.symlink_to(folder.resolve())
        return _derived(place, members, options, redactions)


def _derived(
    folder: Path, members: Sequence[Member], options: Options, redactions: Sequence[Mapping[str, Any]]
) -> Derived:
    overrides, where = options.overrides(), f"{folder}/"
    rules = rules_of(folder, options)
    measured = [
        measure(folder / member.path, member.kind, overrides, redacted(redactions, member), rules=rules)
        for member in members
    ]
    entries = [
        tuple(_placeless(with_quotes(str(folder / member.log), entry), where) for entry in found)
        for member, (found, _) in zip(members, measured, strict=True)
    ]
    report = Report(entries=[e for part in entries for e in part], tokens=options.tokens, limit_s=options.limit_s)
    return Derived(
        record=_plain(report.to_json(), where),
        text=f"{table(report)}\n{explain(report)}".replace(where, ""),
        results={m.path: _plain(result, where) for m, (_, result) in zip(members, measured, strict=True) if result},
        entries=entries,
        numbers=[[_numbers(entry, options.tokens) for entry in part] for part in entries],
    )


def rules_of(folder: Path, options: Options) -> str | None:
    """Return the path of the rules that a bundle names, whatever the environment asks for; None where it names none."""
    rules = options.rules
    return wanted(str(folder / rules) if rules.endswith(".toml") else rules) if rules else None


def measure(
    path: Path,
    kind: str,
    overrides: Overrides,
    redacted_files: frozenset[str] = frozenset(),
    *,
    rules: str | None = None,
) -> tuple[list[RunEntry], dict[str, Any] | None]:
    """Return the entries of a run folder or a log, with all samples, and the record of nlp-bench/result/1 of a run folder.

    `rules` are those of `rules.apply.wanted`. A run folder that cannot be measured is an entry without a number. Raises UsageError for a log that cannot be opened.
    """
    if kind != RUN_FOLDER:
        return measured_log(str(path), overrides, rules=rules), None
    try:
        found = measured_folder(path, one_line(path), redacted=redacted_files, rules=rules)
    except NlpBenchError as error:
        why = Reason("unreadable", one_line(error))
        return [RunEntry(source=one_line(path), outcome=Outcome.UNKNOWN, reasons=(why,))], None
    return [found.entry], result_record(replace(found, entry=replace(found.entry, source="job.out")))


def _placeless(entry: RunEntry, where: str) -> RunEntry:
    return replace(
        entry,
        source=entry.source.replace(where, ""),
        reasons=tuple(Reason(reason.code, reason.text.replace(where, "")) for reason in entry.reasons),
        remarks=tuple(text.replace(where, "") for text in entry.remarks),
    )


def _plain(record: dict[str, Any], where: str) -> dict[str, Any]:
    """Return what JSON keeps of a record, without the place of the bundle."""
    text = json.dumps(record)
    place = json.dumps(where)[1:-1]
    plain: dict[str, Any] = json.loads(text.replace(place, ""))
    return plain


def _numbers(entry: RunEntry, tokens: int) -> dict[str, Any]:
    record = entry.to_json(tokens)
    names = ("outcome", "tokens_per_second", "time_to_report_s", "num_gpus")
    numbers: dict[str, Any] = json.loads(json.dumps({name: record[name] for name in names}))
    return numbers
