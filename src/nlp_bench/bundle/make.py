"""Makes a bundle: collect, black out, measure what is left, hash, pack; the numbers must survive the blacking out."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlp_bench.bundle.archive import form_of, write_archive
from nlp_bench.bundle.collect import Collected, collect, opened_file, plain_name
from nlp_bench.bundle.derive import RESULT, Derived, derive, measure, rules_of
from nlp_bench.bundle.differences import differences
from nlp_bench.bundle.digests import line_digests
from nlp_bench.bundle.manifest import (
    LINES,
    MANIFEST,
    REPORT,
    REPORT_TEXT,
    RULES,
    SUMS,
    USUAL_TOKENS,
    File,
    Manifest,
    Member,
    Options,
    place_of,
)
from nlp_bench.bundle.signature import path_of, sign
from nlp_bench.bundle.software import tables, write_software
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.files import read_object, write_bytes, write_json, write_text
from nlp_bench.measure.contradiction import doubts
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.workload import lookup
from nlp_bench.seal import State, sha256_of
from nlp_bench.show.escape import one_line


@dataclass(frozen=True, kw_only=True)
class Made:
    """A bundle that was written."""

    path: Path
    """The archive or the folder."""
    digest: str
    """SHA-256 of its manifest.json: the line for the bid."""
    manifest: Manifest
    """What it holds."""
    entries: Sequence[RunEntry]
    """Its runs."""
    signature: Path | None
    """Where its signature lies."""
    remarks: Sequence[str]
    """What its maker should know before it is handed over."""


def make_bundle(  # noqa: PLR0913  # one wish each
    paths: Sequence[str], output: Path, options: Options, *, with_ranks: bool, force: bool, key: Path | None = None
) -> Made:
    """Write the evidence of `paths` to `output`, whole or not at all; the same input gives the same bytes.

    With `key`, an SSH key's file, its signature is written beside it.

    Raises UsageError for a PATH or an output that cannot be, NlpBenchError where blacking out secrets changes a number.
    """
    form = form_of(output)
    _check_output(output, form, force=force)
    if key and path_of(output).exists() and not force:
        raise UsageError(f"--sign: {path_of(output)} exists; name another --output, or give --force to replace it")
    try:
        return _make(paths, output, form, options, with_ranks=with_ranks, key=key)
    except OSError as error:
        raise NlpBenchError(f"cannot write {output}: {explained(error)}; nothing was left there") from error


def _make(  # noqa: PLR0913  # as above
    paths: Sequence[str], output: Path, form: str | None, options: Options, *, with_ranks: bool, key: Path | None
) -> Made:
    overrides = options.overrides()
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as private:
        folder = Path(private) / "evidence"
        folder.mkdir()
        collected = collect(paths, folder, overrides, with_ranks=with_ranks)
        options = _with_rules(collected, options)
        derived = derive(folder, collected.members, options, collected.redactions)
        _check_survival(collected, derived, overrides, rules_of(folder, options))
        manifest = _write_records(collected, derived, options)
        remarks = [*manifest.remarks, *_contradictions(manifest, derived), *_broken(manifest, derived)]
        digest = sha256_of(folder / MANIFEST)
        signature = sign(folder / MANIFEST, key) if key else None
        if form:
            write_archive(folder, output, form)
        else:
            folder.rename(output)  # over an empty folder too; the private one lies beside it, on the same file system
    if signature:
        write_bytes(path_of(output), signature)
    elif path_of(output).exists():
        remarks.append(f"{path_of(output)} is the signature of an earlier bundle; make it anew with --sign")
    entries = [entry for part in derived.entries for entry in part]
    return Made(
        path=output,
        digest=digest,
        manifest=manifest,
        entries=entries,
        signature=path_of(output) if signature else None,
        remarks=remarks,
    )


def _check_output(output: Path, form: str | None, *, force: bool) -> None:
    if not output.parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.parent}")
    if form and output.is_dir():
        raise UsageError(f"--output {output} is a folder; name a file, or a folder without {form}")
    if form and output.exists() and not force:
        raise UsageError(f"--output {output} exists; name another file, or give --force to replace it")
    if not form and output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UsageError(f"--output {output} exists and is no empty folder; name another")


def _with_rules(collected: Collected, options: Options) -> Options:
    """Take a rule file of one's own along, and name it by its place in the bundle."""
    if not (options.rules and options.rules.endswith(".toml")):
        return options
    path = f"{RULES}/{plain_name(Path(options.rules).name)}"
    with opened_file(Path(options.rules)) as stream:
        collected.copy(stream, path)
    return replace(options, rules=path)


def _check_survival(collected: Collected, derived: Derived, overrides: Overrides, rules: str | None) -> None:
    """Measure the originals too: what was blacked out must not have been part of a number."""
    for member, item, entries in zip(collected.members, collected.originals, derived.entries, strict=True):
        inside = [r for r in collected.redactions if f"{r['file']}/".startswith(f"{member.path}/")]
        if not inside:
            continue
        originals, _ = measure(item.folder if member.is_ours else item.file, member.kind, overrides, rules=rules)
        before, after = ([_rates(entry) for entry in found] for found in (originals, entries))
        for difference in differences(after, before, f"{member.path}: runs"):
            raise NlpBenchError(
                f"without its secrets the log gives another number: {difference}; take the secret out of the line that is measured "
                f"by hand ({'; '.join(map(place_of, inside))})"
            )


def _rates(entry: RunEntry) -> dict[str, Any]:
    record = entry.to_json(USUAL_TOKENS)
    return {name: record[name] for name in ("outcome", "num_records", "tokens_per_second")}


def _write_records(collected: Collected, derived: Derived, options: Options) -> Manifest:
    folder = collected.folder
    software, remarks = write_software(folder)
    for name in ("patch", "untracked"):
        if software.get(name):
            collected.redact_here(software[name])
    for name, table in tables().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(table, folder / name)
    (folder / REPORT).parent.mkdir()
    write_json(folder / REPORT, derived.record)
    write_text(folder / REPORT_TEXT, derived.text)
    for path, record in derived.results.items():
        write_json(folder / path / RESULT, record)
    _write_lines(folder)
    manifest = Manifest(
        nlp_bench=software,
        options=options,
        runs=[replace(m, numbers=n) for m, n in zip(collected.members, derived.numbers, strict=True)],
        redactions=collected.redactions,
        remarks=[*collected.remarks, *remarks, *_other_commits(folder, collected.members, software)],
        files=_files(folder),
    )
    write_json(folder / MANIFEST, manifest.to_json())
    sums = {**{file.path: file.sha256 for file in manifest.files}, MANIFEST: sha256_of(folder / MANIFEST)}
    write_text(folder / SUMS, "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items())))
    return manifest


def _write_lines(folder: Path) -> None:
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        target = folder / LINES / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(line_digests(path), encoding="ascii")


def _files(folder: Path) -> list[File]:
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [File(path=p, size=(folder / p).stat().st_size, sha256=sha256_of(folder / p)) for p in paths]


def _other_commits(folder: Path, members: Sequence[Member], software: dict[str, Any]) -> list[str]:
    """Say where a run was made by another nlp-bench than the one whose patch is in the bundle."""
    said = []
    for member in members:
        path = folder / member.path / "run.json"
        if not member.is_ours:
            continue
        commit = lookup(read_object(path), "nlp_bench.commit")
        if isinstance(commit, str) and commit.split("+")[0] != software["commit"]:
            made_by = one_line(commit)
            said.append(f"{member.path} was made by nlp-bench at commit {made_by}, the bundle at {software['commit']}")
    return said


def _broken(manifest: Manifest, derived: Derived) -> list[str]:
    return [
        f"{member.path}: {finding.text}"
        for member, entries in zip(manifest.runs, derived.entries, strict=True)
        for entry in entries
        for finding in entry.seals
        if finding.state is State.BROKEN
    ]


def _contradictions(manifest: Manifest, derived: Derived) -> list[str]:
    members = zip(manifest.runs, derived.entries, strict=True)
    return [f"{m.log}: {found.text}" for m, entries in members for e in entries for found in doubts(e.contradictions)]
