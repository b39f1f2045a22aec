"""manifest.json: the content of a bundle, its numbers, and how to derive them again."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.errors import UsageError
from nlp_bench.escape import one_line
from nlp_bench.files import parse_record, record_text
from nlp_bench.immutable import immutable
from nlp_bench.measure import REPORT_TOKENS
from nlp_bench.show.table import fact
from nlp_bench.walk import MANIFEST

if TYPE_CHECKING:
    from nlp_bench.measure.sizes import Overrides

SCHEMA = "nlp-bench/bundle/1"
SUMS, RULES = "SHA256SUMS", "rules"
REPORT, REPORT_TEXT = "report/report.json", "report/report.txt"
RUN_FOLDER, LOG = "run folder", "log"
_NAME = re.compile(r"[A-Za-z0-9_+=@,%-][A-Za-z0-9_.+=@,%-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
line = partial(fact, width=10)  # of what is said of a bundle


def is_safe(path: str) -> bool:
    """Return whether a path of a bundle is relative, without `..`, hidden or empty parts, and of plain characters alone."""
    return len(path) <= 250 and all(_NAME.fullmatch(part) for part in path.split("/"))


@immutable
class Options:
    """The options of the report, by which it is reproduced."""

    tokens: int = REPORT_TOKENS  # tokens of the hypothetical training
    limit_s: float | None = None
    sequence_length: int | None = None  # tokens per sample, for logs that do not say it
    global_batch_size: int | None = None  # samples per iteration, likewise
    num_gpus: int | None = None  # GPUs of the run, likewise
    rules: str | None = None  # rules for the runs: a name of benchmark/rules, or the path of a file in the bundle

    def overrides(self) -> "Overrides":
        """Return the sizes that they state where logs do not."""
        from nlp_bench.measure.sizes import Overrides  # noqa: PLC0415  # reading a manifest needs no numpy

        return Overrides(
            sequence_length=self.sequence_length, global_batch_size=self.global_batch_size, num_gpus=self.num_gpus
        )

    def arguments(self) -> list[str]:
        """Return them as `nlp-bench report` takes them."""
        given = {("limit" if name == "limit_s" else name): value for name, value in asdict(self).items() if value}
        return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", f"{value}")]

    def text(self) -> str:
        """Return them as text: a number means nothing without its tokens, nor without what its maker stated in place of the log."""
        sizes = ("sequence_length", "global_batch_size", "num_gpus")
        given = [f"{name.replace('_', ' ')} {value}" for name in sizes if (value := getattr(self, name))]
        unusual = f", not the usual {REPORT_TOKENS:,}" if self.tokens != REPORT_TOKENS else ""
        parts = [f"time for {self.tokens:,} tokens{unusual}"]
        parts += [f"limit {self.limit_s:g} s"] if self.limit_s else []
        parts += [f"rules {self.rules}"] if self.rules else []
        parts += [f"said by its maker where a log does not: {', '.join(given)}"] if given else []
        return "; ".join(parts)


@immutable
class Member:
    """One run folder of ours or one log of somebody in the bundle."""

    path: str  # its path in the bundle: a folder, or the log
    kind: str  # `run folder` or `log`, as the report reads it
    name: str  # its name when the bundle was made
    numbers: Sequence[Mapping[str, Any]] = ()  # of each of its runs the outcome and the numbers, null for none

    @property
    def log(self) -> str:
        """Path of its log in the bundle."""
        return f"{self.path}/job.out" if self.is_ours else self.path

    @property
    def is_ours(self) -> bool:
        """Whether it is a run folder of ours."""
        return self.kind == RUN_FOLDER

    def redacted(self, redactions: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        """Return the names of its files in which a secret was redacted: their hashes have changed."""
        paths = {str(redaction.get("file")) for redaction in redactions}
        return frozenset(path.removeprefix(f"{self.path}/") for path in paths if path.startswith(f"{self.path}/"))


def place_of(redaction: Mapping[str, Any]) -> str:
    """Return file, lines (the first ten) and rule of a redaction."""
    lines = ", ".join(map(str, redaction["lines"][:10])) + (" ..." if redaction["count"] > 10 else "")
    return f"{redaction['file']} line {lines}: {redaction['kind']}"


def run_lines(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return outcome and numbers of the runs of a bundle, a line each."""
    lines = []
    for run in runs:
        for numbers in run["numbers"]:
            rates, times = numbers["tokens_per_second"], numbers["time_to_report_s"]
            known = [kind for kind in ("steady", "reference") if rates[kind] is not None]
            shown = [f"{kind} {rates[kind]:.2f} tokens/s, {times[kind]:.2f} s" for kind in known]
            lines.append(f"  {run['path']} ({run['name']}): {one_line('; '.join([numbers['outcome'], *shown]))}")
    return lines


@immutable
class File:
    """One file of the bundle."""

    path: str
    size: int
    sha256: str


@immutable
class Manifest:
    """The record of one bundle."""

    nlp_bench: Mapping[str, Any]  # version and commit of the program, and the path of its patch of uncommitted changes
    options: Options
    runs: Sequence[Member]
    redactions: Sequence[Mapping[str, Any]] = ()  # file, kind, count and lines of each redaction, never the secret
    remarks: Sequence[str] = ()
    files: Sequence[File] = ()  # all files but manifest.json and SHA256SUMS, sorted by path

    def to_json(self) -> dict[str, Any]:
        """Return the object of nlp-bench/bundle/1."""
        again = ["nlp-bench", "report", *(run.path for run in self.runs), *self.options.arguments()]
        return {
            "schema": SCHEMA,
            "nlp_bench": dict(self.nlp_bench),
            "options": asdict(self.options),
            "derived_by": " ".join(again),
            "runs": [asdict(run) for run in self.runs],
            "redactions": [dict(redaction) for redaction in self.redactions],
            "remarks": list(self.remarks),
            "files": [asdict(file) for file in self.files],
        }


def read_manifest(path: Path) -> Manifest:
    """Read and check an untrusted manifest. Raises UsageError that says why it is none."""
    try:
        record = parse_record(record_text(path))
        found = str(record["schema"])
        if found != SCHEMA:
            newer = "; install a newer nlp-bench" if found.startswith(SCHEMA.rpartition("/")[0]) else ""
            raise UsageError(f"{MANIFEST}: schema is {found[:80]!r}, expected {SCHEMA!r}{newer}")
        manifest = Manifest(
            nlp_bench={str(name): value for name, value in record["nlp_bench"].items()},
            options=Options(**record["options"]),
            runs=[Member(**run) for run in record["runs"]],
            redactions=[dict(redaction) for redaction in record["redactions"]],
            remarks=[str(remark) for remark in record["remarks"]],
            files=[File(**file) for file in record["files"]],
        )
    except OSError as error:
        raise UsageError(f"{MANIFEST} is not the manifest of a bundle: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{MANIFEST} is not the manifest of a bundle: {type(error).__name__}: {error}") from error
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    for field in fields(Options):
        value = getattr(manifest.options, field.name)
        kinds = (int, float) if field.name == "limit_s" else (int,)
        is_number = isinstance(value, kinds) and not isinstance(value, bool) and 0 < value <= 10**18
        is_path = field.name == "rules" and isinstance(value, str) and is_safe(value)
        if not (is_number or is_path or (value is None and field.name != "tokens")):
            expected = "a plain relative path" if field.name == "rules" else "a number above 0"
            raise UsageError(f"{MANIFEST}: options.{field.name} is {str(value)[:80]!r}, expected {expected}")
    if not manifest.runs or not all(_is_member(run) for run in manifest.runs):
        raise UsageError(f"{MANIFEST}: runs must be a list of run folders and logs with plain relative paths")
    for file in manifest.files:
        if not (isinstance(file.path, str) and is_safe(file.path)):
            raise UsageError(f"{MANIFEST}: files: unsafe path {str(file.path)[:120]!r}; nothing was read")
        if not (isinstance(file.size, int) and isinstance(file.sha256, str) and _SHA256.fullmatch(file.sha256)):
            raise UsageError(f"{MANIFEST}: files: size or sha256 of {file.path} is not one")
    paths = [file.path for file in manifest.files]
    if len(set(paths)) < len(paths) or not {MANIFEST, SUMS}.isdisjoint(paths):
        raise UsageError(f"{MANIFEST}: files: a path is listed twice, or is the manifest itself")


def _is_member(run: Member) -> bool:
    is_placed = isinstance(run.path, str) and is_safe(run.path)
    is_named = run.kind in (RUN_FOLDER, LOG) and isinstance(run.name, str)  # a list is not hashable
    return is_placed and is_named and isinstance(run.numbers, list)
