"""Verifies a bundle offline: every hash, every number out of the raw logs, and every log line against itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.bundle.derive import RESULT, Derived, derive
from nlp_bench.bundle.differences import differences
from nlp_bench.bundle.integrity import faults
from nlp_bench.bundle.manifest import MANIFEST, REPORT, REPORT_TEXT, Manifest, Member, Options, read_manifest
from nlp_bench.bundle.reading import read_record
from nlp_bench.bundle.signature import Signature, path_of
from nlp_bench.bundle.signature import check as check_signature
from nlp_bench.bundle.software import checkout, tables
from nlp_bench.bundle.unpack import MAX_BYTES, opened
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.logs.source import HEAD_BYTES, is_packed
from nlp_bench.measure.contradiction import Weight, doubts
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.restated import stating
from nlp_bench.seal import Finding, State, sealed_log_of, sha256_of
from nlp_bench.show.escape import one_line

SCHEMA = "nlp-bench/verification/1"
MAX_NAMED = 100
"""Faults of one kind that are named; of more the count is told."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found."""

    bundle: str
    """The archive or folder."""
    digest: str
    """SHA-256 of its manifest.json."""
    made_by: Mapping[str, Any]
    """Version and commit of the nlp-bench that made it, as it says."""
    options: Options
    """What its report was asked for, as it says: the tokens, and what its maker said of the logs."""
    num_files: int
    """Files whose hash was checked."""
    num_fields: int
    """Numbers and words that were derived again."""
    num_lines: int
    """Log lines that were held against themselves."""
    faults: Sequence[str]
    """Changed, missing and extra files, with the lines."""
    differences: Mapping[str, Sequence[str]]
    """What does not follow from the logs, by the file that says it."""
    contradictions: Sequence[str]
    """What in the logs contradicts something else that they say, by the checks of `nlp-bench report`."""
    chain: Mapping[str, Sequence[Finding]]
    """By the path of a run of ours, the links between its records."""
    broken_links: Sequence[str]
    """Links that are broken, and nonces that are not the one that was asked for."""
    signature: Signature | None
    """The signature, None where it was not asked about."""
    remarks: Sequence[str]
    """What to know, no fault."""
    runs: Sequence[Mapping[str, Any]]
    """Path, name and the numbers as they follow from the logs."""

    @property
    def is_verified(self) -> bool:
        """Say whether nothing speaks against the bundle."""
        is_signed = self.signature is None or self.signature.is_good
        return is_signed and not (self.faults or self.differences or self.contradictions or self.broken_links)

    def to_json(self) -> dict[str, Any]:
        """Return the object of nlp-bench/verification/1."""
        chain = {path: [finding.to_json() for finding in found] for path, found in self.chain.items()}
        return {"schema": SCHEMA, "verified": self.is_verified, **asdict(self), "chain": chain}


@dataclass(frozen=True, kw_only=True)
class Demands:
    """What is known of a bundle from elsewhere; None is not asked about."""

    digest: str | None = None
    """The SHA-256 of its manifest, say from the bid."""
    nonce: str | None = None
    """The buyer's text, which every log must begin with."""
    allowed_signers: Path | None = None
    """OpenSSH's list of those who may sign."""
    identity: str | None = None
    """Who of them must have signed; by default anybody."""
    signature: Path | None = None
    """Where the signature lies; by default beside the bundle."""


NOTHING = Demands()


def verify(path: Path, demands: Demands = NOTHING, *, max_bytes: int = MAX_BYTES) -> Verification:
    """Verify the bundle at `path`, and what is demanded of it.

    Raises UsageError for what is no bundle or is unsafe to open. Nothing is written outside a private temporary folder.
    """
    try:
        with opened(path, max_bytes) as folder:
            return _verified(path, folder, demands)
    except OSError as error:
        raise UsageError(f"{path}: cannot read {error.filename or 'the bundle'}: {error.strerror or error}") from error


def _verified(path: Path, folder: Path, demands: Demands) -> Verification:
    manifest = read_manifest(folder / MANIFEST)
    found = sha256_of(folder / MANIFEST)
    broken, digest = list(faults(folder, manifest)), demands.digest
    if digest and digest.lower() != found:
        broken.insert(
            0, f"the digest is {found}, expected {digest.lower()}: this is another bundle, or it was made anew"
        )
    derived, why = _derived(folder, manifest)
    differing = {"logs": [why]} if why else {}
    measured: list[tuple[Member, RunEntry]] = []
    if derived:
        differing = {name: said for name, found in _differing(folder, manifest, derived) if (said := _limited(found))}
        measured = list(_measured(folder, manifest, derived))
    chain = _chain(manifest, derived)
    return Verification(
        bundle=str(path),
        digest=found,
        made_by=manifest.nlp_bench,
        options=manifest.options,
        num_files=len(manifest.files),
        num_fields=_count(derived.record) if derived else 0,
        num_lines=sum(
            int(entry.records.whole.sum()) for _, entry in measured if entry.has_number and stating(entry.records)
        ),
        faults=_limited(broken),
        differences=differing,
        contradictions=_limited(
            f"{member.log}: {found.text}" for member, entry in measured for found in doubts(entry.contradictions)
        ),
        chain=chain,
        broken_links=_limited([*_broken(chain), *_other_nonces(folder, manifest, demands.nonce)]),
        signature=_signature(path, folder, demands),
        remarks=[
            *_other_tables(folder),
            *_remarks(manifest, measured, is_differing=bool(differing)),
            *_unasked(path, demands),
        ],
        runs=_runs(manifest, derived),
    )


def _derived(folder: Path, manifest: Manifest) -> tuple[Derived | None, str | None]:
    """Derive the numbers, or say why that fails: a bundle may hold anything."""
    unread = next(filter(None, (_why_unread(folder, member) for member in manifest.runs)), None)
    if unread:
        return None, unread
    try:
        return derive(folder, manifest.runs, manifest.options, manifest.redactions), None
    except NlpBenchError as error:
        return None, f"no number can be derived: {one_line(error).replace(f'{folder}/', '')}"
    except Exception as error:  # noqa: BLE001  # whatever a mutilated run.json brings about
        return None, f"no number can be derived: {type(error).__name__}: {one_line(error)[:200]}"


def _why_unread(folder: Path, member: Member) -> str | None:
    try:
        with (folder / member.log).open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:
        # A run of ours that never started has no log, and its entry says so.
        return None if member.is_ours else f"{member.log} cannot be read: no number can be derived"
    return f"{member.log} is compressed; a bundle holds plain logs, nothing was derived" if is_packed(head) else None


def _differing(folder: Path, manifest: Manifest, derived: Derived) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield each file that holds numbers, with what it says against the logs."""
    is_other = manifest.nlp_bench.get("version") != __version__
    yield REPORT, _record(folder / REPORT, derived.record, is_other=is_other)
    stated = {member.path: list(member.numbers) for member in manifest.runs}
    numbers = dict(zip(stated, derived.numbers, strict=False))
    yield MANIFEST, differences(stated, numbers, ignore_new=is_other)
    for path, result in derived.results.items():
        yield f"{path}/{RESULT}", _record(folder / path / RESULT, result, is_other=is_other)
    yield REPORT_TEXT, _text(folder / REPORT_TEXT, derived.text)


def _record(path: Path, derived: dict[str, Any], *, is_other: bool) -> Iterator[str]:
    stated, why = read_record(path)
    if why:
        yield why
    else:
        yield from differences(stated, derived, ignore_new=is_other)


def _text(path: Path, derived: str) -> Iterator[str]:
    try:
        stated = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        yield "cannot be read"
        return
    lines = derived.splitlines()
    for number, (one, other) in enumerate(zip(stated, lines, strict=False), start=1):
        if one != other:
            yield f"line {number}: bundle says {one_line(one)[:200]!r}, the log gives {one_line(other)[:200]!r}"
    if len(stated) != len(lines):
        yield f"has {len(stated)} lines, the log gives {len(lines)}"


def _measured(folder: Path, manifest: Manifest, derived: Derived) -> Iterator[tuple[Member, RunEntry]]:
    for member, entries in zip(manifest.runs, derived.entries, strict=True):
        if (folder / member.log).is_file():
            yield from ((member, entry) for entry in entries)


def _chain(manifest: Manifest, derived: Derived | None) -> dict[str, tuple[Finding, ...]]:
    found = zip(manifest.runs, derived.entries, strict=True) if derived else ()
    return {member.path: entry.seals for member, entries in found for entry in entries if member.is_ours}


def _broken(chain: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    for path, findings in chain.items():
        yield from (f"{path}: {finding.text}" for finding in findings if finding.state is State.BROKEN)


def _other_nonces(folder: Path, manifest: Manifest, nonce: str | None) -> Iterator[str]:
    for member in manifest.runs if nonce else ():
        said = {part.nonce for part in sealed_log_of(folder / member.log).parts}
        if said != {nonce}:
            found = ", ".join(sorted(one_line(word or "none") for word in said)) or "none"
            yield f"{member.log} does not begin with the nonce {nonce}; it says {found}"


def _signature(path: Path, folder: Path, demands: Demands) -> Signature | None:
    if demands.allowed_signers is None:
        return None
    place = demands.signature or path_of(path)
    return check_signature(folder / MANIFEST, place, demands.allowed_signers, demands.identity)


def _unasked(path: Path, demands: Demands) -> Iterator[str]:
    if demands.allowed_signers is None and path_of(path).exists():
        yield f"{path_of(path)} was not checked; give --allowed-signers FILE"


def _other_tables(folder: Path) -> Iterator[str]:
    for name, ours in tables().items():
        path = folder / name
        if not path.is_file() or sha256_of(ours) != sha256_of(path):
            yield f"{name} is not as in this nlp-bench: a difference in words of rules or in FLOP/s may come from it"


def _remarks(manifest: Manifest, measured: list[tuple[Member, RunEntry]], *, is_differing: bool) -> Iterator[str]:
    made_by = (manifest.nlp_bench.get("version"), manifest.nlp_bench.get("commit"))
    ours = (__version__, checkout()[1])
    if made_by != ours:
        more = "; a difference may come from that: install the other one to be sure" if is_differing else ""
        yield f"made by {_program(made_by)}, verified by {_program(ours)}{more}"
    for member, entry in measured:
        if not stating(entry.records):
            yield f"{member.log}: its lines state their time once only, so that they cannot be held against themselves"
        remarks = (found for found in entry.contradictions if found.weight is Weight.REMARK)
        yield from (f"{member.log}: {found.text}" for found in remarks)


def _program(origin: tuple[Any, Any]) -> str:
    version, commit = (one_line(word)[:40] for word in origin)
    return f"nlp-bench {version} (commit {commit})" if origin[1] else f"nlp-bench {version}"


def _runs(manifest: Manifest, derived: Derived | None) -> list[dict[str, Any]]:
    numbers = derived.numbers if derived else [[] for _ in manifest.runs]
    return [
        {"path": member.path, "name": one_line(member.name)[:200], "numbers": list(found)}
        for member, found in zip(manifest.runs, numbers, strict=True)
    ]


def _count(record: Any) -> int:
    if isinstance(record, Mapping):
        return sum(map(_count, record.values()))
    return sum(map(_count, record)) if isinstance(record, list) else 1


def _limited(said: Any) -> list[str]:
    texts = list(said)
    more = [f"and {len(texts) - MAX_NAMED} more"] if len(texts) > MAX_NAMED else []
    return [*texts[:MAX_NAMED], *more]
