"""Turn one run's log into result.json and metrics.txt. Exit code 0 once both are written, however the run ended."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

EXAMPLE = "nlp-bench measure nlp_benchmark_run/000000/000003_train/work"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run folder and where metrics.txt goes."""
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="folder with run.json, outcome.json and job.out")
    parser.add_argument(
        "--metrics", metavar="FILE", type=Path, help="where the lines for JUBE go (default RUN_DIR/metrics.txt)"
    )


def run(options: argparse.Namespace) -> int:
    """Measure, write both files, print one sentence about the run; return 0."""
    from nlp_bench.errors import UsageError  # --help stays light
    from nlp_bench.files import write_json, write_text
    from nlp_bench.launch.end.advice import advice
    from nlp_bench.launch.end.ending import Ending
    from nlp_bench.launch.end.evidence import read_record
    from nlp_bench.measure.record import metrics_text, result_record
    from nlp_bench.outcome import Outcome
    from nlp_bench.rules.apply import measured_folder, wanted

    folder: Path = options.run_dir
    if not folder.is_dir():
        raise UsageError(f"RUN_DIR {folder} is no folder; give the folder that holds run.json")
    not_ended = _not_ended(folder)
    if not_ended is not None:
        not_ended["reasons"] += [f"when it has ended: {_again(options)} and then jube result -a"]
        print(f"nlp-bench: {folder}: {'; '.join(not_ended['reasons'])}", file=sys.stderr)
    measured = measured_folder(folder, source="job.out", ended=not_ended, rules=wanted(None))
    if not_ended is None:
        write_json(folder / "result.json", result_record(measured))
    script = read_record(folder, measured.ended.get("job_id"))
    text = metrics_text(measured, job_elapsed_s=script.elapsed_s if script else None)
    write_text(options.metrics or folder / "metrics.txt", text)
    print(text, end="")
    if not_ended is None and measured.entry.outcome is not Outcome.VALID:
        ending = Ending(
            outcome=measured.entry.outcome,
            reasons=list(measured.entry.reason_texts),
            evidence=measured.ended.get("evidence"),
        )
        print(advice(ending, folder).text(), file=sys.stderr)
    return 0


def _not_ended(folder: Path) -> "dict[str, Any] | None":
    """Return what stands in for outcome.json where a marker that nobody of ours wrote led JUBE here before the run's end.

    None where the run has ended (its end is decided here if need be), and where there is no such marker. Such a run is a row without
    a number until it is measured again.
    """
    from nlp_bench import schemas
    from nlp_bench.launch.follow.sync import sync
    from nlp_bench.marker import is_bare

    if not is_bare(folder):
        return None
    ending, state = sync(folder)
    if ending is not None:
        return None
    reason = f"the run has not ended ({state}); its marker `ready` was not written by nlp-bench and is removed"
    return {"schema": schemas.OUTCOME, "outcome": "UNKNOWN", "reasons": [reason], "evidence": None, "exit_status": None}


def _again(options: argparse.Namespace) -> str:
    words = ["nlp-bench", "measure", str(options.run_dir)]
    words += ["--metrics", str(options.metrics)] if options.metrics else []
    return shlex.join(words)
