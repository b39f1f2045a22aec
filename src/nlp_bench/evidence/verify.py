"""Verifies a bundle offline: every hash, every number from the raw logs, and the consistency of every log line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.config import catalog
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line
from nlp_bench.evidence import signature
from nlp_bench.evidence.archive import MAX_BYTES, is_of_this_machine, opened
from nlp_bench.evidence.collect import checkout, tables
from nlp_bench.evidence.derive import RESULT, Derived, derive, differences
from nlp_bench.evidence.hashes import faults
from nlp_bench.evidence.manifest import REPORT, REPORT_TEXT, Manifest, Member, Options, line, read_manifest, run_lines
from nlp_bench.files import parse_record, record_text, sha256_of
from nlp_bench.immutable import immutable
from nlp_bench.logs.source import HEAD_BYTES, is_packed
from nlp_bench.measure.contradiction import Weight, doubts
from nlp_bench.measure.restated import stating
from nlp_bench.measure.result import RunResult
from nlp_bench.seal import Finding, State, sealed_log_of
from nlp_bench.walk import MANIFEST

SCHEMA = "nlp-bench/verification/1"
MAX_NAMED = 100  # faults of one kind that are listed; of more the count is given


@immutable
class Verification:
    """The result of a verification."""

    bundle: str
    digest: str
    made_by: Mapping[str, Any]  # version and commit of the nlp-bench that made it, as it states
    options: Options  # those of its report, as it states: the tokens, and what its maker stated in place of the logs
    num_files: int
    num_fields: int  # numbers and words that were derived again and compared
    num_lines: int  # log lines whose statements were compared with each other
    faults: Sequence[str]
    differences: Mapping[str, Sequence[str]]  # what does not follow from the logs, by the file that states it
    added: Sequence[str]  # logged settings that it lacks, and that the other commit which made it may not read
    contradictions: Sequence[str]  # contradictions within the logs, by the checks of `nlp-bench report`
    chain: Mapping[str, Sequence[Finding]]  # by the path of a run of ours, the links between its records
    broken_links: Sequence[str]  # links that are broken, and nonces that are not the requested one
    signature: signature.Signature | None  # the signature, None where none was requested
    remarks: Sequence[str]
    runs: Sequence[Mapping[str, Any]]  # path, name and the numbers as they follow from the logs

    @property
    def is_verified(self) -> bool:
        """Whether nothing speaks against the bundle."""
        is_signed = self.signature is None or self.signature.is_good
        return is_signed and not (self.faults or self.differences or self.contradictions or self.broken_links)

    def to_json(self) -> dict[str, Any]:
        """Return the object of nlp-bench/verification/1."""
        chain = {path: [finding.to_json() for finding in found] for path, found in self.chain.items()}
        return {"schema": SCHEMA, "verified": self.is_verified, **asdict(self), "chain": chain}


@immutable
class Demands:
    """What a bundle must match, known from elsewhere; None is not checked."""

    digest: str | None = None  # the SHA-256 of its manifest, say from the bid
    nonce: str | None = None  # the buyer's text, which every log must begin with
    allowed_signers: Path | None = None  # OpenSSH's list of allowed signers
    identity: str | None = None  # which of them must have signed; by default any
    signature: Path | None = None  # path of the signature; by default next to the bundle


NOTHING = Demands()


def verify(path: Path, demands: Demands = NOTHING, *, max_bytes: int = MAX_BYTES) -> Verification:
    """Verify the bundle at `path`, and what is demanded of it, in a private temporary folder. Raises UsageError for what is no bundle or is unsafe to open."""
    try:
        with opened(path, max_bytes) as folder:
            return _verified(path, folder, demands)
    except OSError as error:
        raise UsageError(f"{path}: cannot read {error.filename or 'the bundle'}: {error.strerror or error}") from error


def _verified(path: Path, folder: Path, demands: Demands) -> Verification:
    manifest = read_manifest(folder / MANIFEST)
    digest = sha256_of(folder / MANIFEST)
    derived, why = _derived(folder, manifest)
    pairs = list(zip(manifest.runs, derived.entries, strict=True)) if derived else []
    entries = [(member, entry) for member, found in pairs for entry in found if (folder / member.log).is_file()]
    differing, added = _differing(folder, manifest, derived) if derived else ({"logs": [why]}, {})
    settings = sorted({name for names in added.values() for name in names})
    seals = {member.path: entry.seals for member, found in pairs for entry in found if member.is_ours}
    broken = [f"{at}: {link.text}" for at, links in seals.items() for link in links if link.state is State.BROKEN]
    beside, signers = signature.path_of(path), demands.allowed_signers
    is_unchecked = signers is None and beside.exists()
    numbers = zip(manifest.runs, derived.numbers if derived else [()] * len(manifest.runs), strict=True)
    place = demands.signature or beside
    signed = signature.check(folder / MANIFEST, place, signers, demands.identity) if signers else None
    return Verification(
        bundle=str(path),
        digest=digest,
        made_by=manifest.nlp_bench,
        options=manifest.options,
        num_files=len(manifest.files),
        num_fields=_count(derived.record) - len(added[REPORT]) if derived else 0,
        num_lines=sum(int(e.records.whole.sum()) for _, e in entries if e.has_number and stating(e.records)),
        faults=_limited([*_other_digest(digest, demands.digest), *faults(folder, manifest)]),
        differences=differing,
        added=settings,
        contradictions=_limited(f"{m.log}: {found.text}" for m, e in entries for found in doubts(e.contradictions)),
        chain=seals,
        broken_links=_limited([*broken, *_other_nonces(folder, manifest, demands.nonce)]),
        signature=signed,
        remarks=[
            *_other_tables(folder),
            *_other_program(manifest, settings, is_differing=bool(differing)),
            *_remarks(entries),
            *([f"{beside} was not checked; give --allowed-signers FILE"] if is_unchecked else []),
        ],
        runs=[{"path": m.path, "name": one_line(m.name)[:200], "numbers": list(found)} for m, found in numbers],
    )


def _derived(folder: Path, manifest: Manifest) -> tuple[Derived | None, str]:
    """Derive the numbers, or return why that fails: a bundle may hold anything."""
    unread = next(filter(None, (_why_unread(folder, member) for member in manifest.runs)), None)
    if unread:
        return None, unread
    try:
        return derive(folder, manifest.runs, manifest.options, manifest.redactions), ""
    except NlpBenchError as error:
        return None, f"no number can be derived: {one_line(error)}"
    except Exception as error:  # whatever a mutilated run.json brings about
        if isinstance(error, MemoryError) or is_of_this_machine(error):
            raise
        return None, f"no number can be derived: {type(error).__name__}: {one_line(error)[:200]}"


def _why_unread(folder: Path, member: Member) -> str | None:
    try:
        with (folder / member.log).open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:  # a run of ours that never started has no log, as its entry states
        return None if member.is_ours else f"{member.log} cannot be read: no number can be derived"
    return f"{member.log} is compressed; a bundle holds plain logs, nothing was derived" if is_packed(head) else None


def _differing(folder: Path, manifest: Manifest, derived: Derived) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return by file what does not follow from the logs, and which logged settings it lacks because another commit made it."""
    is_other = _made_by(manifest) != _own()
    stated = {member.path: list(member.numbers) for member in manifest.runs}
    numbers = dict(zip(stated, derived.numbers, strict=False))
    found: dict[str, Iterator[str]] = {
        REPORT: iter(()),
        MANIFEST: chain(_other_fields(folder, manifest), differences(stated, numbers)),
    }
    added: dict[str, list[str]] = {}
    for name, record in [(REPORT, derived.record), *((f"{at}/{RESULT}", one) for at, one in derived.results.items())]:
        added[name] = []
        found[name] = _other_record(folder / name, record, added[name] if is_other else None)
    found[REPORT_TEXT] = _other_text(folder / REPORT_TEXT, derived.text)
    return {name: listed for name, sentences in found.items() if (listed := _limited(sentences))}, added


def _other_fields(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yield where the manifest holds what no manifest has, or what does not follow from the rest of it."""
    stated, known = parse_record(record_text(folder / MANIFEST)), manifest.to_json()
    for name in [*stated, *(name for name in known if name not in stated)]:
        if name not in known:
            yield f"{name}: no manifest has this key"
        elif stated.get(name) != known[name]:
            yield f"{name}: it is not what the rest of the manifest makes it"


def _other_record(path: Path, derived: dict[str, Any], added: list[str] | None) -> Iterator[str]:
    try:
        stated = parse_record(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        yield "is missing"
    except (OSError, ValueError) as error:
        yield f"is not JSON: {one_line(error)[:200]}"
    else:
        yield from differences(stated, derived, added=added)


def _other_text(path: Path, derived: str) -> Iterator[str]:
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


def _other_digest(found: str, expected: str | None) -> Iterator[str]:
    if expected and expected.lower() != found:
        why = "this is another bundle, or it was made anew, or that is the hash of the archive; the digest is that of manifest.json"
        yield f"the digest is {found}, expected {expected.lower()}: {why}"


def _other_nonces(folder: Path, manifest: Manifest, nonce: str | None) -> Iterator[str]:
    for member in manifest.runs if nonce else ():
        nonces = {part.nonce for part in sealed_log_of(folder / member.log).parts}
        if nonces != {nonce}:
            found = ", ".join(sorted(one_line(word or "none") for word in nonces)) or "none"
            yield f"{member.log} does not begin with the nonce {nonce}; it says {found}"


def _other_tables(folder: Path) -> Iterator[str]:
    for name, own in tables().items():
        path = folder / name
        if not path.is_file() or sha256_of(own) != sha256_of(path):
            yield f"{name} is not as in this nlp-bench: a difference in words of rules or in FLOP/s may come from it"
    known = catalog.names("rules")
    for path in sorted((folder / "data/rules").glob("*.toml")):
        if path.stem not in known:
            yield f"data/rules/{path.name} is of the bundle's maker, this nlp-bench has no rules of that name: read what they ask for"


def _made_by(manifest: Manifest) -> tuple[Any, Any]:
    return manifest.nlp_bench.get("version"), manifest.nlp_bench.get("commit")


def _own() -> tuple[Any, Any]:
    return __version__, checkout()[1]


def _other_program(manifest: Manifest, added: Sequence[str], *, is_differing: bool) -> Iterator[str]:
    made_by, own = _made_by(manifest), _own()
    if made_by != own:
        more = f"; it lacks logged settings that its commit may not read: {', '.join(added)}" if added else ""
        more += "; a difference may come from that: install the other one to be sure" if is_differing else ""
        yield f"made by {_program(*made_by)}, verified by {_program(*own)}{more}"


def _program(version: Any, commit: Any) -> str:
    name = f"nlp-bench {one_line(version)[:40]}"
    return f"{name} (commit {one_line(commit)[:40]})" if commit else name


def _remarks(entries: Sequence[tuple[Member, RunResult]]) -> Iterator[str]:
    for member, entry in entries:
        if not stating(entry.records):
            yield f"{member.log}: its lines state their time once only, so that they cannot be held against themselves"
        remarks = (found for found in entry.contradictions if found.weight is Weight.REMARK)
        yield from (f"{member.log}: {found.text}" for found in remarks)


def _count(record: Any) -> int:
    """Return how many numbers and words a record holds."""
    if isinstance(record, Mapping):
        return sum(map(_count, record.values()))
    return sum(map(_count, record)) if isinstance(record, list) else 1


def _limited(sentences: Iterable[str]) -> list[str]:
    texts = list(sentences)
    more = [f"and {len(texts) - MAX_NAMED} more"] if len(texts) > MAX_NAMED else []
    return [*texts[:MAX_NAMED], *more]


NOT_PROVEN = (
    "not proven by this: who measured, on which machine, and that the log as a whole is genuine; "
    "compare the digest with the one in the bid, and see docs/evidence.md"
)
MAX_REPEATED = 3  # differences that are listed of a file that repeats the report's


def verification_text(found: Verification) -> str:
    """Return the verdict, each fault, and what a verdict does not prove."""
    verdict = "VERIFIED" if found.is_verified else "DIFFERS"
    lines = [f"{found.bundle}: {verdict}", line("digest", found.digest)]
    lines.append(line("options", one_line(found.options.text())))
    if found.faults:
        lines += _faults("files", "not as recorded:", found.faults)
    else:
        lines.append(line("files", f"{found.num_files} hashes, all as recorded"))
    lines += _numbers(found)
    if found.contradictions:
        lines += _faults("log lines", "some contradict others:", found.contradictions)
    elif found.num_lines:
        lines.append(line("log lines", f"{found.num_lines} records agree with themselves and with each other"))
    lines += _chain(found)
    if found.signature:
        word = "good" if found.signature.is_good else f"NOT GOOD: {one_line(found.signature.path)}"
        lines.append(line("signature", f"{word}: {found.signature.text}"))
    lines += run_lines(found.runs) if found.is_verified else []
    lines += [line("note", one_line(remark)) for remark in found.remarks]
    return "\n".join([*lines, f"  {NOT_PROVEN}"]) + "\n"


def _faults(name: str, what: str, faults: Sequence[str]) -> list[str]:
    return [line(name, what), *(f"    {one_line(fault)}" for fault in faults)]


def _numbers(found: Verification) -> list[str]:
    """Return what differs: all of the report, of the other files only how much, as they repeat it."""
    if not found.differences:
        return [line("numbers", f"{found.num_fields} fields derived again from the logs, all the same")]
    lines: list[str] = []
    for name, sentences in found.differences.items():
        if lines and len(sentences) > MAX_REPEATED:
            lines.append(line("numbers", f"{name}: {len(sentences)} likewise; all of them: --format json"))
        else:
            lines += _faults("numbers", f"{name} does not follow from the logs:", sentences)
    return lines


def _chain(found: Verification) -> list[str]:
    """Return which link broke; else what is sealed, and what is not."""
    if found.broken_links:
        return _faults("chain", "is broken:", found.broken_links)
    lines = []
    for path, findings in found.chain.items():
        by_state = {state: [f.link.value for f in findings if f.state is state] for state in State}
        parts = [f"{len(by_state.pop(State.HOLDS))} link(s) hold"]
        parts += [f"{state.value}: {', '.join(names)}" for state, names in by_state.items() if names]
        lines.append(line("chain", f"{path}: {'; '.join(parts)}"))
    return lines
