"""The numbers of a bundle, derived from its logs alone, the same way when it is made and verified; and two sets of them compared."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlp_bench.config import catalog
from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import one_line
from nlp_bench.evidence.manifest import RUN_FOLDER, Member, Options
from nlp_bench.files import working_in
from nlp_bench.immutable import immutable
from nlp_bench.inputs.read import with_quotes
from nlp_bench.measure.folder import result_record
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.report.explain import explain
from nlp_bench.report.formats import table
from nlp_bench.report.report import Report
from nlp_bench.rules.apply import measured_folder, measured_log, wanted

RESULT = "result.json"
NUMBERS = ("outcome", "tokens_per_second", "time_to_report_s", "num_gpus")  # what the manifest holds of a run
RELATIVE = 1e-9  # difference up to which numbers are equal: another processor adds a million times in another order
_LONGEST = 160


@immutable
class Derived:
    """What follows from the logs."""

    record: dict[str, Any]  # object of nlp-bench/report/1, as JSON gives it back
    text: str  # the table and the explanation of each number
    results: Mapping[str, dict[str, Any]]  # by run folder its nlp-bench/result/1, if it can be measured
    entries: Sequence[Sequence[RunResult]]  # for each member its runs, with all samples
    numbers: Sequence[list[dict[str, Any]]]  # for each member the `numbers` of the manifest


def derive(
    folder: Path, members: Sequence[Member], options: Options, redactions: Sequence[Mapping[str, Any]]
) -> Derived:
    """Measure every member of the bundle unpacked in `folder`, there and by the manifest's paths: none in the result depends on where it is; `redactions` are the manifest's."""
    with catalog.found_from(catalog.here()), working_in(folder):
        overrides, rules = options.overrides(), rules_of(Path(), options)
        measured = [
            measure(Path(member.path), member.kind, overrides, member.redacted(redactions), rules=rules)
            for member in members
        ]
        entries = [
            [with_quotes(member.log, entry) for entry in found]
            for member, (found, _) in zip(members, measured, strict=True)
        ]
    report = Report(entries=[e for part in entries for e in part], tokens=options.tokens, limit_s=options.limit_s)
    return Derived(
        record=_through_json(report.to_json()),
        text=f"{table(report)}\n{explain(report)}",
        results={m.path: _through_json(result) for m, (_, result) in zip(members, measured, strict=True) if result},
        entries=entries,
        numbers=[[picked(entry, options.tokens, *NUMBERS) for entry in part] for part in entries],
    )


def rules_of(folder: Path, options: Options) -> str | None:
    """Return the path of the rules that a bundle names (its maker's, where the name is not known here), whatever the environment names; None where it names none."""
    rules = options.rules
    brought = f"data/rules/{rules}.toml"
    if rules and rules not in catalog.names("rules") and (folder / brought).is_file():
        rules = brought
    return wanted(str(folder / rules) if rules.endswith(".toml") else rules) if rules else None


def measure(
    path: Path, kind: str, overrides: Overrides, redacted: frozenset[str] = frozenset(), *, rules: str | None = None
) -> tuple[list[RunResult], dict[str, Any] | None]:
    """Return the entries of a run folder or a log, with all samples, and the record of nlp-bench/result/1 of a run folder.

    `redacted` names files of the folder in which secrets were blacked out, `rules` are those of `rules.apply.wanted`. A run folder
    that cannot be measured is an entry without a number. Raises UsageError for a log that cannot be opened.
    """
    if kind != RUN_FOLDER:
        return measured_log(str(path), overrides, rules=rules), None
    try:
        found = measured_folder(path, one_line(path), redacted=redacted, rules=rules)
    except NlpBenchError as error:
        why = Reason("unreadable", one_line(error))
        return [RunResult(source=one_line(path), outcome=Outcome.UNKNOWN, reasons=(why,))], None
    return [found.entry], result_record(replace(found, entry=replace(found.entry, source="job.out")))


def picked(entry: RunResult, tokens: int, *names: str) -> dict[str, Any]:
    """Return some fields of a run's object of nlp-bench/report/1, as JSON gives them back."""
    record = entry.to_json(tokens)
    return _through_json({name: record[name] for name in names})


def _through_json(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record as JSON keeps it, for the comparison with one that was read."""
    plain: dict[str, Any] = json.loads(json.dumps(record))
    return plain


_NOTHING = object()


_LOGGED = ".workload.logged"
"""Place of the settings that a log states. Numbers and verdicts that rest on one are fields of their own, so that its absence hides none."""


def differences(stated: Any, derived: Any, place: str = "", added: list[str] | None = None) -> Iterator[str]:
    """Yield a sentence for each field of `stated` (by a bundle) that is not as `derived` (from its log), with both values; with a list `added`, logged settings that only `derived` has go there."""
    if isinstance(stated, Mapping) and isinstance(derived, Mapping):
        for key in [*stated, *(key for key in derived if key not in stated)]:
            if added is not None and key not in stated and place.endswith(_LOGGED):
                added.append(key)
                continue
            below = f"{place}.{key}" if place else str(key)
            yield from differences(stated.get(key, _NOTHING), derived.get(key, _NOTHING), below, added)
    elif isinstance(stated, list) and isinstance(derived, list) and len(stated) == len(derived):
        for index, pair in enumerate(zip(stated, derived, strict=True)):
            yield from differences(*pair, f"{place}[{index}]", added)
    elif isinstance(stated, list) and isinstance(derived, list):
        yield f"{place}: bundle has {len(stated)} entries, the log gives {len(derived)}"
    elif not _is_equal(stated, derived):
        yield f"{place}: bundle says {_written(stated)}, the log gives {_written(derived)}"


def _is_equal(stated: Any, derived: Any) -> bool:
    if type(stated) is bool or type(derived) is bool:
        return stated is derived
    if isinstance(stated, int | float) and isinstance(derived, int | float):
        try:
            return math.isclose(stated, derived, rel_tol=RELATIVE)
        except OverflowError:
            return stated == derived
    return bool(type(stated) is type(derived) and stated == derived)


def _written(value: Any) -> str:
    if value is _NOTHING:
        return "nothing"
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
