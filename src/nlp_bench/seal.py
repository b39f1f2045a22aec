"""The chain of evidence of a run: each record holds the SHA-256 of the one before it, so that what was changed is named.

run.json -> submit.json -> the log's opening line -> its closing line -> outcome.json -> `ready` (nlp_bench.marker).
There is no key: anyone with this program can recompute every hash. docs/evidence.md says what helps against that.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_object, sha256_of
from nlp_bench.immutable import immutable
from nlp_bench.last_start import ITERATION

RUN, LOG, SUBMISSION, OUTCOME = "run.json", "job.out", "submit.json", "outcome.json"
VARIABLE = "NLP_BENCH_RUN_SHA256"  # SHA-256 of the run.json that the launcher read, for the rank that prints the log
MADE_FOR = "NLP_BENCH_MADE_FOR"  # SHA-256 of a job script's run.json: the folder may become another run's
NONE = "none"
_OPENED = re.compile(
    rf" > seal: opened; run\.json SHA-256 (?:{NONE}|(?P<run>[0-9a-f]{{64}})); nonce (?:{NONE}|(?P<nonce>\S{{1,128}}))"
)
_CLOSED = re.compile(r" > seal: closed; (?P<lines>\d{1,12}) lines, SHA-256 (?P<sha256>[0-9a-f]{64})")
_COUNTED = re.compile(
    rf" {ITERATION}|  \w{{1,100}} \.{{3,50}} |(?P<marking> > (?!binding:)[A-Za-z]| checkpoint | profiling iteration )".encode()
)
"""Beginnings of the trainer's lines that the closing hash covers: iterations, facts, arguments, and what marks iterations.

Not covered: the places of the ranks, which other ranks print too, and tables of timers. Lines of other programs begin otherwise.
"""
_RECORD = re.compile(f" ?{ITERATION}".encode())
_PREFIX = re.compile(rb"\[default(\d{1,4})\]:")
"""What torchrun's `--tee` puts before a line of one of its ranks; it may cut a line in two and repeat the prefix before the rest."""

_LABEL = re.compile(rb" *\d{1,6}: ")
"""What srun's `--label` puts before a line of one of its tasks; with `--unbuffered`, too, into the middle of a line."""
_IN_PARTS = re.compile(rb"\S{1,40} std(?:out|err) P ")
"""What the log of a container's runtime (CRI) has before a line that goes on in the next one. Source: kubernetes, logs.go of kuberuntime."""
WHOLE = "`kubectl logs`, `crictl logs` or `podman logs` writes whole ones"


def is_in_parts(raw: bytes) -> bool:
    """Return whether a container's runtime has cut this line of its log; nearly all lines are told by three bytes."""
    return b" P " in raw and _IN_PARTS.match(raw) is not None


class LogSeal:
    """Number and SHA-256 of the covered lines of the trainer's log, updated as they are printed: each with a line end, in UTF-8."""

    def __init__(self) -> None:
        import hashlib  # noqa: PLC0415  # OpenSSL's library, for trainings of ours

        self._digest, self.num_lines = hashlib.sha256(), 0

    def take(self, text: str) -> None:
        """Add one line or several."""
        for line in text.encode("utf-8", "surrogateescape").split(b"\n"):
            self.take_line(line)

    def take_line(self, line: bytes) -> bool:
        """Add one line without its end, and return whether it marks iterations; one that is not covered changes nothing."""
        found = _COUNTED.match(line)
        if found:
            self._digest.update(line + b"\n")
            self.num_lines += 1
        return bool(found and found["marking"])

    @property
    def sha256(self) -> str:
        """SHA-256 of the lines so far, in hexadecimal."""
        return self._digest.hexdigest()

    def closing_line(self) -> str:
        """Return the line that ends the log."""
        return f" > seal: closed; {self.num_lines} lines, SHA-256 {self.sha256}"


def opening_line(run_sha256: str | None, nonce: str | None) -> str:
    """Return the first line of the trainer's log: the SHA-256 of the run.json that it follows, and the buyer's nonce."""
    return f" > seal: opened; run.json SHA-256 {run_sha256 or NONE}; nonce {nonce or NONE}"


@dataclass(kw_only=True)
class Part:
    """What one start of the trainer printed, as a log holds it."""

    first_line: int  # number of its opening line
    run_sha256: str | None  # what its opening line says of run.json
    nonce: str | None  # what it says of the nonce
    seal: LogSeal = field(default_factory=LogSeal)  # its lines as they are
    num_records: int = 0  # lines of iterations
    closed: tuple[int, str] | None = None  # lines and SHA-256 as its closing line states them, None where there is none

    @property
    def is_whole(self) -> bool:
        """Return whether its lines are those that the trainer printed."""
        return self.closed == (self.seal.num_lines, self.seal.sha256)


@immutable
class SealedLog:
    """The trainer's openings and closings in one log."""

    parts: Sequence[Part]  # one for each start, in their order; none in a log of another program or of an older trainer
    stray_line: int | None  # line of the first iteration after the first opening that is in no open part
    last_record_end: int  # byte at which the last iteration's line ends
    num_in_parts: int = 0  # lines that a container's runtime has cut
    marking_lines: frozenset[int] = frozenset()
    """Covered lines of facts, checkpoints and the profiler: no others of such a log may say that an iteration did not train."""

    def why_changed(self) -> str | None:
        """Return why the lines are not those that the trainer printed, None where nothing contradicts it."""
        for part in self.parts:
            if part.closed and not part.is_whole:
                cut = (
                    f" ({self.num_in_parts} are cut in parts, P, by the container's runtime: {WHOLE})"
                    if self.num_in_parts
                    else ""
                )
                return (
                    f"the {part.seal.num_lines} lines from line {part.first_line} on are not the {part.closed[0]} that the trainer "
                    f"printed and hashed at its end{cut}"
                )
        if self.stray_line:
            return f"line {self.stray_line} is an iteration outside of what the trainer opened and closed"
        return None

    def why_open(self) -> str | None:
        """Return that the last start has no closing line, None where it has one or nothing was opened."""
        if not self.parts or self.parts[-1].closed:
            return None
        return f"the training from line {self.parts[-1].first_line} on has no closing line: it was ended early, or lines were removed"


NO_LOG = SealedLog(parts=(), stray_line=None, last_record_end=0)


def read_sealed_log(lines: Iterable[bytes]) -> SealedLog:
    """Read the lines of a log, each with its end; an open file will do."""
    parts: list[Part] = []
    marking: set[int] = set()
    current, stray, end, last, num_in_parts = None, None, 0, 0, 0
    for number, raw in enumerate(lines, start=1):
        end += len(raw)
        num_in_parts += is_in_parts(raw)
        for line in _by_rank(raw.rstrip(b"\r\n")):
            is_record = _RECORD.match(line) is not None
            if is_record:
                last = end
                stray = number if parts and not current and stray is None else stray
            if line.startswith(b" > seal: "):
                text = line.decode("utf-8", "replace")
                if opened := _OPENED.fullmatch(text):
                    current = Part(first_line=number, run_sha256=opened["run"], nonce=opened["nonce"])
                    parts.append(current)
                elif current and (closed := _CLOSED.fullmatch(text)):
                    current.closed = (int(closed["lines"]), closed["sha256"])
                    current = None
            if current:
                current.num_records += is_record
                if current.seal.take_line(line):
                    marking.add(number)
    return SealedLog(
        parts=parts,
        stray_line=stray,
        last_record_end=last,
        num_in_parts=num_in_parts,
        marking_lines=frozenset(marking),
    )


LONGEST_BYTES = 1 << 20
"""Largest piece that is read as one line: a progress bar without line ends, or the hole of a sparse file, may be larger than the memory."""


def sealed_log_of(path: Path) -> SealedLog:
    """Return what the plain log at `path` says, nothing where there is none. Raises OSError."""
    if not path.is_file():
        return NO_LOG
    with path.open("rb") as stream:
        return read_sealed_log(_lines(stream))


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    return iter(partial(stream.readline, LONGEST_BYTES), b"")


def _has_labels(path: Path) -> bool:
    """Return whether most lines of the log begin with a label of srun's."""
    with path.open("rb") as stream:
        return sum(1 if _LABEL.match(line) else -1 for line in _lines(stream)) > 0


def _by_rank(raw: bytes) -> list[bytes]:
    """Return each rank's part of one line of job.out, without torchrun's prefix and what another program put before it."""
    named = _PREFIX.split(raw)[1:] if b"[default" in raw else ()
    if not named:
        return [raw] if raw.startswith((b" ", b"iteration")) else []
    found: list[tuple[bytes, bytes]] = []
    for rank, text in zip(named[::2], named[1::2], strict=True):
        if found and found[-1][0] == rank:
            found[-1] = (rank, found[-1][1] + text)
        else:
            found.append((rank, text))
    return [text for _, text in found]


class Link(str, Enum):
    """The links of the chain, in their order."""

    SUBMISSION = "run.json as submitted"
    OPENING = "run.json as the training read it"
    NONCE = "nonce"
    CLOSING = "lines as the training printed them"
    RUN_AT_END = "run.json at the run's end"
    LOG_AT_END = "job.out at the run's end"


AT_END = {RUN: Link.RUN_AT_END, LOG: Link.LOG_AT_END}
"""Files whose hashes outcome.json states, with their links."""
FROM_THE_FIRST = (
    RUN,
    LOG,
)  # stated by every outcome.json with hashes; a file sealed since is not missing in an older one


class State(str, Enum):
    """What became of a link."""

    HOLDS = "holds"
    BROKEN = "broken"
    MISSING = "not sealed"  # an older nlp-bench made the record, or another program the log
    REDACTED = "blacked out"  # a secret was blacked out in a file of a bundle: its hash cannot be as it was


@immutable
class Finding:
    """One link of one run's chain."""

    link: Link  # which
    state: State  # whether it holds
    text: str = ""  # where it is broken: what was found, and the remedy

    def to_json(self) -> dict[str, str]:
        """Return it for records."""
        return {"link": self.link.name.lower(), "state": self.state.value, "text": self.text}


def at_end(run_dir: Path) -> dict[str, Any]:
    """Return bytes and SHA-256 of the files of AT_END, for outcome.json; a log may grow after that (Slurm's last messages), but not by iterations."""
    found = {}
    for name in AT_END:
        path = run_dir / name
        if path.is_file():
            size = path.stat().st_size
            found[name] = {"bytes": size, "sha256": sha256_of(path, size)}
    return found


def _stated_at_end(run_dir: Path) -> dict[str, Any]:
    """Return what `at_end` gave when outcome.json was written; nothing where that has none of it."""
    sealed = read_object(run_dir / OUTCOME).get("sealed")
    return sealed if isinstance(sealed, dict) else {}


def log_missing(run_dir: Path, at_end: dict[str, Any] | None = None) -> str:
    """Return what of job.out is missing against the size that outcome.json states; "" where nothing is. `at_end` is what it states, where that was read.

    A log that was cut looks so, and one whose end another machine has written and this one does not see yet. It is opened, whereby a
    network file system looks at it anew.
    """
    stated = (_stated_at_end(run_dir) if at_end is None else at_end).get(LOG)
    size = stated.get("bytes") if isinstance(stated, dict) else None
    path = run_dir / LOG
    if not isinstance(size, int) or not path.is_file():
        return ""
    with path.open("rb") as stream:
        seen = stream.seek(0, os.SEEK_END)
    return f"{LOG} has {seen} of {size} bytes" if seen < size else ""


UNPACK = {".gz": "gunzip -k", ".xz": "unxz -k", ".zst": "unzstd", ".bz2": "bunzip2 -k"}  # unpacks, by suffix


def packed(path: Path) -> Path | None:
    """Return what was packed of a file that is not there, by a cleaning job of the site, say; None where it is, or nothing."""
    if os.path.lexists(path):
        return None
    found = (path.with_name(path.name + suffix) for suffix in UNPACK)
    return next((one for one in found if os.path.isfile(one)), None)  # noqa: PTH113  # false, too, where it cannot be looked at


def refuse_packed(run_dir: Path) -> None:
    """Raise NlpBenchError where the log of the run was packed: its hashes and its number are those of the text."""
    if found := packed(run_dir / LOG):
        raise NlpBenchError(
            f"{run_dir / LOG} is missing, and {found.name} lies beside it; unpack that and repeat: {UNPACK[found.suffix]} {shlex.quote(str(found))}"
        )


def refuse_changed(run_dir: Path) -> str:
    """Return the SHA-256 of run.json; raises NlpBenchError where it is not the one that was submitted, or that this job was made for."""
    now = sha256_of(run_dir / RUN)
    stated = read_object(run_dir / SUBMISSION).get("run_sha256")
    if stated is not None and stated != now:
        folder = shlex.quote(str(run_dir))
        raise NlpBenchError(
            f"{run_dir / RUN} was changed after it was submitted: its SHA-256 is {now}, {SUBMISSION} has {stated}; nothing is trained; "
            f"put the original back, or submit the changed one as a run of its own: nlp-bench submit --run {folder}/{RUN}"
        )
    if is_of_another_run(run_dir):
        raise NlpBenchError(
            f"{run_dir / RUN} is of another run than this job was submitted for: its SHA-256 is {now}, the job script was made for "
            f"{os.environ[MADE_FOR]}; nothing is trained; submit the run that is there now anew"
        )
    return now


def is_of_another_run(run_dir: Path) -> bool:
    """Whether the job script that runs here was made for another run.json than the folder has now."""
    made_for, path = os.environ.get(MADE_FOR), run_dir / RUN
    return bool(made_for) and path.is_file() and sha256_of(path) != made_for


def check(
    run_dir: Path,
    *,
    is_valid: bool,
    redacted: frozenset[str] = frozenset(),
    log: SealedLog | None = None,
    run: dict[str, Any] | None = None,
) -> tuple[Finding, ...]:
    """Return every link of the run in `run_dir`, in their order. Files that cannot be read are missing links.

    `log` is its job.out, and `run` its run.json, where that was read already; `is_valid` says that the run ended well, so that its log must be closed; `redacted` are files with blacked out secrets.
    """
    run = read_object(run_dir / RUN) if run is None else run
    chain = _Chain(run_dir, is_valid=is_valid, log=sealed_log_of(run_dir / LOG) if log is None else log, run=run)
    judged = (
        (Link.SUBMISSION, RUN, chain.submission()),
        (Link.OPENING, RUN, chain.opening()),
        (Link.NONCE, None, chain.nonce()),
        (Link.CLOSING, LOG, chain.closing()),
        *((link, name, chain.at_end(name)) for name, link in AT_END.items()),
    )
    return tuple(
        Finding(link=link, state=State.REDACTED)
        if file in redacted and problem is not None
        else Finding(link=link, state=_STATES.get(problem, State.BROKEN), text=problem or "")
        for link, file, problem in judged
    )


_STATES = {None: State.MISSING, "": State.HOLDS}  # what becomes of a link without a problem


class _Chain:
    """What the links of one run are made of; each method judges one link: what broke it, "" where it holds, None where it is not sealed."""

    def __init__(self, run_dir: Path, *, is_valid: bool, log: SealedLog, run: dict[str, Any]) -> None:
        self.path, self.is_valid, self.log, self.run = run_dir, is_valid, log, run
        self.run_sha256 = sha256_of(run_dir / RUN)
        self.submitted = read_object(run_dir / SUBMISSION).get("run_sha256")
        self.ended = _stated_at_end(run_dir)
        self.must_be_sealed = is_valid and self.submitted is not None

    @cached_property
    def missing(self) -> str:
        """What of the log is missing; looked at only where a link does not hold."""
        return log_missing(self.path, self.ended)

    def submission(self) -> str | None:
        if self.submitted is None:
            return None
        changed = (
            f"{RUN} is not the one that was submitted: its SHA-256 is not that of {SUBMISSION}; put the original back"
        )
        return "" if self.submitted == self.run_sha256 else changed

    def opening(self) -> str | None:
        parts, tuning = self.log.parts, self.run.get("tuning")
        if not parts and not self.missing:
            is_ours = isinstance(tuning, dict) and tuning.get("trainer") == "nlp-bench"
            if self.must_be_sealed and is_ours and (self.path / LOG).exists():
                return f"{LOG} has no opening line of the trainer: it is not this run's, or was changed"
        if {part.run_sha256 for part in parts} <= {None}:
            return None
        if other := next((part for part in parts if part.run_sha256 != self.run_sha256), None):
            return (
                f"{LOG} line {other.first_line} was printed by a training that read another {RUN}: one of the two was changed, or is "
                "another run's; put the originals back"
            )
        return ""

    def nonce(self) -> str | None:
        wanted, parts = self.run.get("nonce"), self.log.parts
        if other := next((part for part in parts if part.nonce != wanted), None):
            return f"{LOG} line {other.first_line} says nonce {other.nonce or NONE}, {RUN} says {wanted or NONE}"
        return "" if parts and wanted else None

    def closing(self) -> str | None:
        if changed := self.log.why_changed():
            remedy = ", or run it again"
            if _has_labels(self.path / LOG):
                remedy = "; srun's labels (--label --unbuffered, of a wrapper perhaps) have cut lines: start srun without --unbuffered"
            return f"{LOG}: {changed}; compare them with what each rank printed (ranks/ beside it){remedy}"
        if still_open := self.log.why_open():
            return f"{LOG}: {still_open}" if self.is_valid and not self.missing else None
        return "" if self.log.parts else None

    def at_end(self, name: str) -> str | None:
        """Judge a file by what outcome.json has of it; after that a log may grow, but not by iterations."""
        stated, path = self.ended.get(name), self.path / name
        if stated is None and not (self.must_be_sealed and name in FROM_THE_FIRST):
            return None
        if not path.exists():
            return f"{name} is missing, or not seen from here yet; put the original back"
        if isinstance(stated, dict) and isinstance(size := stated.get("bytes"), int) and size >= 0 and path.is_file():
            has_size = path.stat().st_size >= size if name == LOG else path.stat().st_size == size
            if has_size and sha256_of(path, size) == stated.get("sha256"):
                has_grown = name == LOG and self.log.last_record_end > size
                return f"{LOG} has iterations after the {size} bytes that {OUTCOME} was decided by" if has_grown else ""
        if name == LOG and self.missing:
            return f"{self.missing}: cut, or not wholly seen from here yet; repeat the same command"
        return f"{name} is not what the run ended with: its SHA-256 is not that of {OUTCOME}; put the original back"
