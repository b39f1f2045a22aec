"""Pack the evidence behind numbers into one file: raw logs, run.json, environment, report, patches and hashes.

PATH is what `nlp-bench report` takes: run folders, a JUBE run, logs of any program, or - for standard input. Secrets are blacked
out and listed; --redact-report lists them without making a bundle. The same input gives the same bytes. Check it with: nlp-bench verify FILE
Exit code 0 when the bundle is written, also where a run has no number; 1 when it cannot be, 2 for a wrong word.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from nlp_bench.cli.options import add_format, add_limit, add_overwrite, add_rules, add_sizes, add_tokens, use_one_thread
from nlp_bench.errors import UsageError

EXAMPLE = """nlp-bench bundle nlp_benchmark_run/000000 --output evidence.tar.zst
  nlp-bench bundle train.log --sequence-length 2048 --limit 560
  nlp-bench bundle nlp_benchmark_run/000000 --redact-report"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the paths, the output and what a log may not say."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="run folder, JUBE run, log or -")
    parser.add_argument(
        "--output", type=Path, default=Path("evidence.tar.gz"), metavar="FILE",
        help=".tar.gz, .tar.zst, .tar or a new folder (default evidence.tar.gz)",
    )  # fmt: skip
    add_overwrite(parser, "replace an archive that exists")
    parser.add_argument(
        "--sign",
        type=Path,
        metavar="KEYFILE",
        help="sign it by this SSH key (ssh-keygen -Y sign); writes FILE.sig beside it",
    )
    parser.add_argument("--ranks", action="store_true", help="take the logs of single ranks along")
    parser.add_argument(
        "--redact-report",
        action="store_true",
        help="make no bundle: print which lines of which files it would black out, and by which rule",
    )
    add_format(parser, "table", "json", default=None, text="form of --redact-report (default table)")
    add_tokens(parser)
    add_sizes(parser)
    add_limit(parser)
    add_rules(parser)


def run(options: argparse.Namespace) -> int:
    """Make the bundle; print its content and the line for the bid."""
    use_one_thread()
    from nlp_bench.evidence.make import make_bundle
    from nlp_bench.evidence.manifest import Options
    from nlp_bench.evidence.text import made_talk, made_text, redactions_text

    if options.redact_report and options.sign:
        raise UsageError("--sign: with --redact-report no bundle is made; leave one of them out")
    if options.format and not options.redact_report:
        raise UsageError("--format is that of --redact-report; a bundle is an archive or a folder, by --output")
    wanted = Options(
        tokens=options.tokens,
        limit_s=options.limit,
        sequence_length=options.sequence_length,
        global_batch_size=options.global_batch_size,
        num_gpus=options.num_gpus,
        rules=options.rules or os.environ.get("NLP_BENCH_RULES") or None,
    )
    if options.redact_report:
        with tempfile.TemporaryDirectory(prefix="nlp-bench-redact-") as private:
            made = make_bundle(options.paths, Path(private, "e"), wanted, with_ranks=options.ranks, force=False)
        print(redactions_text(made.manifest, is_json=options.format == "json"), end="")
        return 0
    made = make_bundle(
        options.paths, options.output, wanted, with_ranks=options.ranks, force=options.overwrite, key=options.sign
    )
    print(made_text(made), end="")
    for said in made_talk(made):
        print(f"nlp-bench: {said}", file=sys.stderr)
    return 0
