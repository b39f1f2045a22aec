"""Turn one run's log into result.json and metrics.txt. Exit code 0 once both are written, however the run ended."""

import argparse
from pathlib import Path

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
    from nlp_bench.measure.folder import measure_folder
    from nlp_bench.measure.metrics import metrics_text
    from nlp_bench.measure.result import result_record

    folder: Path = options.run_dir
    if not folder.is_dir():
        raise UsageError(f"RUN_DIR {folder} is no folder; give the folder that holds run.json")
    measured = measure_folder(folder, source="job.out")
    write_json(folder / "result.json", result_record(measured))
    text = metrics_text(measured)
    write_text(options.metrics or folder / "metrics.txt", text)
    print(text, end="")
    return 0
