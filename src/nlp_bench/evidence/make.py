"""Makes a bundle: collect, redact, measure what is left, hash, pack; redaction must not change a number. What is said of it."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.escape import one_line
from nlp_bench.evidence.archive import form_of, write_archive
from nlp_bench.evidence.collect import Collected, add_rules, add_software, collect, tables
from nlp_bench.evidence.derive import RESULT, Derived, derive, differences, measure, picked, rules_of
from nlp_bench.evidence.hashes import files_of, line_digests, sums_text
from nlp_bench.evidence.manifest import REPORT, REPORT_TEXT, SUMS, Manifest, Options, line, place_of, run_lines
from nlp_bench.evidence.signature import path_of, sign
from nlp_bench.files import read_object, sha256_of, write_bytes, write_json, write_text
from nlp_bench.immutable import immutable
from nlp_bench.measure import REPORT_TOKENS
from nlp_bench.measure.contradiction import doubts
from nlp_bench.measure.result import RunResult, refuse_against_log
from nlp_bench.measure.workload import lookup
from nlp_bench.outcome import Outcome
from nlp_bench.seal import RUN, State
from nlp_bench.show.table import Column, as_text, json_text
from nlp_bench.walk import LINES, MANIFEST


@immutable
class Made:
    """A bundle that was written."""

    path: Path
    digest: str  # SHA-256 of its manifest.json: the line for the bid
    manifest: Manifest
    entries: Sequence[RunResult]
    signature: Path | None
    remarks: Sequence[str]  # what its maker should know before handing it over


def make_bundle(  # noqa: PLR0913  # one option each
    paths: Sequence[str], output: Path, options: Options, *, with_ranks: bool, force: bool, key: Path | None = None
) -> Made:
    """Write the evidence of `paths` to `output`, whole or not at all; the same input gives the same bytes.

    With `key`, an SSH key's file, its signature is written next to it. Raises UsageError for a PATH or an output that cannot be,
    NlpBenchError where redaction changes a number.
    """
    form = form_of(output)
    _check_output(output, form, force=force)
    if key and path_of(output).exists() and not force:
        raise UsageError(f"--sign: {path_of(output)} exists; name another --output, or give --force to replace it")
    try:
        # What cannot be removed (a .nfs file, a scanner that has one open) is in nobody's way: the bundle is there by then.
        made = tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent, ignore_cleanup_errors=True)
        with made as private:
            folder = Path(private) / "evidence"
            folder.mkdir()
            collected = collect(paths, folder, options.overrides(), with_ranks=with_ranks)
            options = add_rules(collected, options)
            derived = derive(folder, list(collected.members), options, collected.redactions)
            entries = [entry for part in derived.entries for entry in part]
            refuse_against_log(entries)
            _check_survival(collected, derived, options)
            manifest = _write_records(collected, derived, options)
            digest = sha256_of(folder / MANIFEST)
            signature = sign(folder / MANIFEST, key) if key else None
            if form:
                write_archive(folder, output, form)
            else:
                # Over an empty folder too; the private one is next to it, on the same file system.
                folder.rename(output)
        remarks = [*manifest.remarks, *_objections(manifest, derived)]
        if signature:
            write_bytes(path_of(output), signature)
        elif path_of(output).exists():
            remarks.append(f"{path_of(output)} is the signature of an earlier bundle; make it anew with --sign")
    except OSError as error:
        raise NlpBenchError(f"cannot write {output}: {explained(error)}; nothing was left there") from error
    return Made(
        path=output,
        digest=digest,
        manifest=manifest,
        entries=entries,
        signature=path_of(output) if signature else None,
        remarks=remarks,
    )


def _check_output(output: Path, form: str | None, *, force: bool) -> None:
    if output.name in {"", ".."}:
        raise UsageError(f"--output {output} is a folder; name a file in it, or a new folder")
    if not output.parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.parent}")
    if form and output.is_dir():
        raise UsageError(f"--output {output} is a folder; name a file, or a folder without {form}")
    if form and output.exists() and not force:
        raise UsageError(f"--output {output} exists; name another file, or give --force to replace it")
    if not form and output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UsageError(f"--output {output} exists and is no empty folder; name another")


def _check_survival(collected: Collected, derived: Derived, options: Options) -> None:
    """Measure the originals too: what was redacted must not have been part of a number."""
    for member, item, entries in zip(collected.members, collected.members.values(), derived.entries, strict=True):
        inside = [r for r in collected.redactions if f"{r['file']}/".startswith(f"{member.path}/")]
        if not inside:
            continue
        original = item.folder if member.is_ours else item.file
        rules = rules_of(collected.folder, options)
        originals, _ = measure(original, member.kind, options.overrides(), rules=rules)
        names = ("outcome", "num_records", "tokens_per_second")
        before, after = ([picked(one, REPORT_TOKENS, *names) for one in found] for found in (originals, entries))
        for difference in differences(after, before, f"{member.path}: runs"):
            raise NlpBenchError(
                f"without its secrets the log gives another number: {difference}; take the secret out of the line that is measured "
                f"by hand ({'; '.join(map(place_of, inside))})"
            )


def _write_records(collected: Collected, derived: Derived, options: Options) -> Manifest:
    """Write all that is not collected: tables, report, results, hashes, and the manifest, which is returned."""
    folder = collected.folder
    software = add_software(collected)
    for name, table in tables().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(table, folder / name)
    (folder / REPORT).parent.mkdir()
    write_json(folder / REPORT, derived.record)
    write_text(folder / REPORT_TEXT, derived.text)
    for path, record in derived.results.items():
        write_json(folder / path / RESULT, record)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        target = folder / LINES / file.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(line_digests(file), encoding="ascii")
    manifest = Manifest(
        nlp_bench=software,
        options=options,
        runs=[replace(m, numbers=n) for m, n in zip(collected.members, derived.numbers, strict=True)],
        redactions=collected.redactions,
        remarks=[*collected.remarks, *_other_commits(collected, software["commit"])],
        files=files_of(folder),
    )
    write_json(folder / MANIFEST, manifest.to_json())
    write_text(folder / SUMS, sums_text(folder, manifest))
    return manifest


def _other_commits(collected: Collected, own: str | None) -> Iterator[str]:
    """Yield where a run was made by another nlp-bench than the one whose patch is in the bundle."""
    for member in collected.members:
        run = read_object(collected.folder / member.path / RUN) if member.is_ours else {}
        commit = lookup(run, "nlp_bench.commit")
        if isinstance(commit, str) and commit.split("+")[0] != own:
            yield f"{member.path} was made by nlp-bench at commit {one_line(commit)}, the bundle at {own or 'one that is not known'}"


def _objections(manifest: Manifest, derived: Derived) -> Iterator[str]:
    """Yield objections to the numbers of the runs: the maker should know them before the buyer does."""
    runs = [(m, entry) for m, found in zip(manifest.runs, derived.entries, strict=True) for entry in found]
    yield from (f"{m.log}: {found.text}" for m, entry in runs for found in doubts(entry.contradictions))
    yield from (f"{m.path}: {link.text}" for m, entry in runs for link in entry.seals if link.state is State.BROKEN)


def made_text(made: Made) -> str:
    """Return what was made, and the line for the bid."""
    size = sum(file.size for file in made.manifest.files)
    lines = [
        f"{made.path}: {len(made.manifest.runs)} run(s), {len(made.manifest.files)} files, {size} bytes unpacked",
        line("options", one_line(made.manifest.options.text())),
        *run_lines([{"path": m.path, "name": m.name, "numbers": m.numbers} for m in made.manifest.runs]),
    ]
    lines += [line("signature", str(made.signature))] if made.signature else []
    lines += ["put this line into the bid:", f"  nlp-bench evidence, SHA-256 of manifest.json: {made.digest}"]
    return "\n".join(lines) + "\n"


def made_talk(made: Made) -> Iterator[str]:
    """Yield what the maker should look at before handing the bundle over."""
    for redaction in made.manifest.redactions:
        yield f"blacked out: {place_of(redaction)}"
    yield from made.remarks
    unknown = sum(entry.outcome is Outcome.UNKNOWN for entry in made.entries)
    ended = sum(not entry.has_number for entry in made.entries) - unknown
    if ended:
        yield f"{ended} of {len(made.entries)} run(s) have no number: the bundle proves how they ended"
    if unknown:
        yield f"{unknown} of {len(made.entries)} run(s) have not ended, or left no record of it: the bundle does not prove how they end"


def redactions_text(manifest: Manifest, *, is_json: bool) -> str:
    """Return a row for each redacted line, by the name of the file that the bundle was made from; as JSON one entry per file and rule."""
    found = [{**redaction, "file": _original(manifest, redaction["file"])} for redaction in manifest.redactions]
    if is_json:
        return json_text({"schema": "nlp-bench/redactions/1", "redactions": found})
    rows = [(entry["file"], str(line), entry["kind"]) for entry in found for line in entry["lines"]]
    cut = [(entry, entry["count"] - len(entry["lines"])) for entry in found]
    rows += [(entry["file"], f"{more} more", entry["kind"]) for entry, more in cut if more]
    if not rows:
        return "nothing is blacked out\n"
    file, line, rule = zip(*rows, strict=True)
    columns = [Column(heading="file", cells=file, is_text=True), Column(heading="line", cells=line)]
    return "\n".join([*as_text([*columns, Column(heading="rule", cells=rule, is_text=True)]), ""])


def _original(manifest: Manifest, path: str) -> str:
    for member in manifest.runs:
        if f"{path}/".startswith(f"{member.path}/"):
            return member.name + path[len(member.path) :]
    return path
