"""Learn from measured runs of one machine: factors on what the planner predicts, and a narrower interval.

RESULTS are run folders, their result.json, or folders of runs (JUBE's too). Only valid runs count, and only of one machine and GPU.
`nlp-bench plan --learn RESULTS` does the same before it plans. Exit code 0; 1 when no run counts; 2 for a wrong word.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from nlp_bench.cli.options import add_constants
from nlp_bench.config.options import add_fields
from nlp_bench.config.request import Request

EXAMPLE = """nlp-bench plan learn runs/tonight --output mine.toml
  nlp-bench plan --model 13 --system juwels-booster --nodes 8 --constants mine.toml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and where the constants go."""
    parser.add_argument(
        "results", metavar="RESULTS", nargs="+", type=Path, help="run folders, result.json, folders of runs"
    )
    add_fields(parser, Request, ["system"], {"system": "learn of this system only (default that of most runs)"})
    add_constants(parser)
    parser.add_argument("--output", metavar="FILE.toml", type=Path, help="write the constants for plan --constants")


def run(options: argparse.Namespace) -> int:
    """Learn, print the report, write the constants; return the exit code."""
    from nlp_bench.errors import UsageError

    output: Path | None = options.output
    if output and (output.suffix != ".toml" or not output.parent.is_dir()):
        raise UsageError(f"--output {output}: give the name of a .toml file in a folder that is there")
    from nlp_bench.cli.options import refuse_to_replace
    from nlp_bench.plan.constants import SCHEMA, read_constants
    from nlp_bench.plan.learn import learn, report, write_learned

    refuse_to_replace("--output", output, mark=SCHEMA.encode())
    lesson = learn(read_constants(options.constants), options.results, result_of, options.system)
    print(report(lesson), end="")
    if output:
        write_learned(output, lesson.learned, options.constants)
        print(f"wrote {output}; use it with: nlp-bench plan --constants {output}", file=sys.stderr)
    return 0


def result_of(folder: Path) -> dict[str, Any]:
    """Return the result of a run's folder: what was written, else what its log says now."""
    from nlp_bench.files import read_json
    from nlp_bench.measure.record import SCHEMA, result_record
    from nlp_bench.rules.apply import measured_folder, wanted

    if (folder / "result.json").exists():
        return read_json(folder / "result.json", SCHEMA)
    return result_record(measured_folder(folder, source="job.out", rules=wanted(None)))
