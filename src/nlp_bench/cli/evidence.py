"""Evidence and results for others: `nlp-bench bundle`, `verify`, `export`."""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import (
    JudgedOptions,
    LogOptions,
    TokensOption,
    allowing_measured,
    form,
    overwriting,
    refuse_to_replace,
    use_one_thread,
)
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import argument, flag, given, value
from nlp_bench.config.values import OneOf, count
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.escape import some
from nlp_bench.files import temporary_folder, write_text
from nlp_bench.immutable import immutable
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.export.forms import Subject

_NUM_NAMED = 5  # fields that a refusal names
EXPORTS = ("mlperf", "mllog", "torchtitan", "bigger", "smaller", "bencher")


@immutable
class Bundle(Command, JudgedOptions, LogOptions):
    """Pack the evidence behind numbers into one file: raw logs, run.json, environment, report, patches and hashes.

    PATH is what `nlp-bench report` takes: run folders, a JUBE run, logs of any program, or - for standard input. Secrets are blacked
    out and listed; --redact-report lists them without making a bundle. The same input gives the same bytes. Check it with: nlp-bench verify FILE
    Exit code 0 when the bundle is written, also where a run has no number; 1 when it cannot be, 2 for a wrong word.
    """

    EXAMPLE = """nlp-bench bundle nlp_benchmark_run/000000 --output evidence.tar.zst
  nlp-bench bundle train.log --sequence-length 2048 --limit 560
  nlp-bench bundle nlp_benchmark_run/000000 --redact-report"""

    paths: tuple[str, ...] = argument("PATH", nargs="+")  # Run folder, JUBE run, log or -.
    output: Path = value(default=Path("evidence.tar.gz"), metavar="FILE")
    """.tar.gz, .tar.zst, .tar or a new folder (default evidence.tar.gz)."""
    overwrite: bool = overwriting("replace an archive that exists")
    sign: Path | None = value(metavar="KEYFILE")
    """Sign it by this SSH key (ssh-keygen -Y sign); writes FILE.sig beside it."""
    ranks: bool = flag()  # Take the logs of single ranks along.
    redact_report: bool = flag()
    """Make no bundle: print which lines of which files it would black out, and by which rule."""
    format: str | None = form("table", "json", default=None, text="form of --redact-report (default table)")

    def run(self) -> int:
        use_one_thread()
        from nlp_bench.evidence.make import made_talk, made_text, make_bundle, redactions_text
        from nlp_bench.evidence.manifest import Options

        if self.redact_report and self.sign:
            raise UsageError("--sign: with --redact-report no bundle is made; leave one of them out")
        if self.format and not self.redact_report:
            raise UsageError("--format is that of --redact-report; a bundle is an archive or a folder, by --output")
        rules = {"rules": os.environ.get("NLP_BENCH_RULES") or None}
        wanted = Options(limit_s=self.limit, **rules | given(self, Options))
        paths = self.paths
        if self.redact_report:
            with tempfile.TemporaryDirectory(prefix="nlp-bench-redact-", dir=temporary_folder()) as private:
                made = make_bundle(paths, Path(private, "e"), wanted, with_ranks=self.ranks, force=False)
            print(redactions_text(made.manifest, is_json=self.format == "json"), end="")
            return 0
        made = make_bundle(paths, self.output, wanted, with_ranks=self.ranks, force=self.overwrite, key=self.sign)
        print(made_text(made), end="")
        say(*made_talk(made))
        return 0


def _digest(text: str) -> str:
    found = re.fullmatch(r"(?:sha256:)?([0-9a-fA-F]{64})", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is no SHA-256: 64 hexadecimal digits, as `bundle` printed them"
        )
    return found[1].lower()


@immutable
class Verify(Command):
    """Verify a bundle offline: check every hash, derive every number again from the raw logs, hold each log line against itself.

    The chain of evidence of each run of ours, a nonce of yours and an SSH signature are checked too: docs/evidence.md.

    Nothing is believed and nothing is written outside a private temporary folder.
    Exit code 0 when it is verified, 1 when something differs (each difference is named), 2 when it is no bundle or unsafe to open.
    """

    EXAMPLE = """nlp-bench verify evidence.tar.gz
  nlp-bench verify evidence.tar.gz --digest 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"""

    bundle: Path = argument("BUNDLE")  # Archive or folder that `nlp-bench bundle` made.
    digest: str | None = value(read=_digest, metavar="SHA256")  # The digest that was stated, say in the bid.
    nonce: str | None = value(metavar="TEXT")  # The text that you gave; every log must begin with it.
    allowed_signers: Path | None = value(metavar="FILE")
    """Check the signature by ssh-keygen -Y verify; FILE has lines such as: me@example.org ssh-ed25519 AAAA..."""
    identity: str | None = value(metavar="ID")  # Who of FILE must have signed it (default: anybody).
    signature: Path | None = value(metavar="FILE")  # The signature (default BUNDLE.sig).
    max_bytes: int = value(read=count, default=4 << 30)  # Refuse what unpacks to more bytes (default 4Gi).
    format: str = form("text", "json")

    def run(self) -> int:
        use_one_thread()
        from nlp_bench.evidence.verify import Demands, verification_text, verify

        if not self.bundle.exists():
            raise UsageError(
                f"BUNDLE {self.bundle} does not exist; give the archive or folder that `nlp-bench bundle` made"
            )
        if self.allowed_signers is None and (self.identity or self.signature):
            raise UsageError("--identity and --signature need --allowed-signers FILE: who may sign comes from you")
        if self.nonce is not None and not self.nonce:
            raise UsageError("--nonce: it is empty; give the text that every log must begin with")
        found = verify(self.bundle, Demands(**given(self, Demands)), max_bytes=self.max_bytes)
        if self.format == "json":
            print(json.dumps(found.to_json(), indent=1, ensure_ascii=False, default=str))
        else:
            print(verification_text(found), end="")
        return 0 if found.is_verified else 1


_FIELD = re.compile(r'^(?:\s*"|- |## )([\w. -]+)"?(?:: |\n\n)("",?$|not recorded(?:$|;)|\(to be filled)?', re.MULTILINE)
"""A field of a system description or of a page, and how it is left to be filled by hand."""


def _lost(earlier: str, text: str) -> list[str]:
    """Return the fields that are filled in an earlier file and would be empty in `text`."""
    filled = {name for name, gap in _FIELD.findall(earlier) if not gap}
    return [name for name, gap in _FIELD.findall(text) if gap and name in filled]


@immutable
class Export(Command, TokensOption, LogOptions):
    """Valid runs in the forms of others: MLPerf, torchtitan's benchmark pages, collectors of continuous benchmarking.

    FORMAT is one of
      mlperf      system description JSON, 33 fields; what nobody recorded is "" and listed on standard error (--set fills it)
      mllog       `:::MLLOG` events that mlperf_logging reads: no MLPerf submission, the measurement in its words
      torchtitan  markdown page with the six items of torchtitan's submission guidelines
      bigger      JSON for github-action-benchmark, tool customBiggerIsBetter: tokens per second
      smaller     JSON for github-action-benchmark, tool customSmallerIsBetter: seconds
      bencher     JSON in the Bencher Metric Format
    Exit code 0 when every run was exported, 1 when some have no number (each is named), 2 for a wrong word.
    """

    EXAMPLE = """nlp-bench export torchtitan nlp_benchmark_run/000000 --submitter 'Example Centre'
  nlp-bench export mlperf nlp_benchmark_run/000000 --set cooling=liquid --output mlperf/"""

    kind: str = argument("FORMAT", read=OneOf(*EXPORTS), help=", ".join(EXPORTS))
    paths: tuple[str, ...] = argument("PATH", nargs="+")  # Run folder, JUBE run or log.
    output: Path | None = value(metavar="DIR")  # Write files of the usual names into this folder.
    submitter: str = value(default="", metavar="NAME")  # Who measured: no record knows it.
    filled: tuple[str, ...] = value("--set", default=(), metavar="FIELD=VALUE")
    """Fill a field of the system description."""
    allow_measured: bool = allowing_measured("export")

    def run(self) -> int:
        use_one_thread()
        from nlp_bench.export.forms import subjects

        found, refused = subjects(self.paths, self.overrides(), self.tokens, allow_measured=self.allow_measured)
        say(*refused)
        if not found:
            raise NlpBenchError("no run has a number that could be exported; see: nlp-bench report PATH")
        documents = list(self._documents(found))
        if self.output:
            try:
                self.output.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"--output {self.output} cannot be made: {explained(error)}; or give another folder"
                ) from error
            for name, text in documents:
                path = self.output / name
                # Bencher's record begins with the name of the first run.
                mark = b'"tokens-per-second": {' if self.kind == "bencher" else text.encode()[:16]
                refuse_to_replace("--output", path, mark=mark)
                earlier = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else text
                if lost := _lost(earlier, text):
                    raise UsageError(
                        f"--output {path}: what it says on {some(lost, _NUM_NAMED)}, by hand or by --set, would be replaced by nothing; "
                        "move it, or name another folder"
                    )
            for name, text in documents:
                write_text(self.output / name, text)
                print(f"wrote {self.output / name}", file=sys.stderr)
        elif len(documents) > 1:
            raise UsageError(f"{len(documents)} files are to be written: give --output DIR")
        else:
            print(documents[0][1], end="")
        return 1 if refused else 0

    def _documents(self, found: "Sequence[Subject]") -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each file."""
        from nlp_bench.export import forms, mllog

        if self.filled and self.kind != "mlperf":
            raise UsageError("--set fills fields of the system description: it goes with mlperf")
        if self.kind == "mlperf":
            yield from self._descriptions(found)
        elif self.kind == "mllog":
            yield from ((f"result_{n}.txt", mllog.events_text(s, self.submitter)) for n, s in enumerate(found))
        elif self.kind == "torchtitan":
            yield forms.page_name(found, self.submitter), forms.page(found, self.submitter)
        else:
            yield f"{self.kind}.json", forms.collected(found, self.kind)

    def _descriptions(self, found: "Sequence[Subject]") -> Iterator[tuple[str, str]]:
        from nlp_bench.export.forms import given_fields, system_description

        fields = {**({"submitter": self.submitter} if self.submitter else {}), **given_fields(self.filled)}
        descriptions = []
        for subject in found:
            description, own = system_description(subject, fields), system_description(subject, {})
            other = [f"{field} {own[field]!r}" for field in fields if own[field] and own[field] != description[field]]
            say(*(f"{subject.entry.source}: its records say {one}; --set has replaced it" for one in other))
            if description not in descriptions:
                descriptions.append(description)
        for number, description in enumerate(descriptions, start=1):
            missing = [field for field, text in description.items() if not text]
            if missing:
                say(f"to be filled by hand or by --set ({len(missing)}): {', '.join(missing)}")
            name = "system_desc_id.json" if len(descriptions) == 1 else f"system_desc_id_{number}.json"
            yield name, json.dumps(description, indent=2, ensure_ascii=False) + "\n"
