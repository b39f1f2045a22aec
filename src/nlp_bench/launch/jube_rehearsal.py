"""Rehearse a run where JUBE would otherwise submit it: a row of the rehearsal's table, no job, no measurement."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nlp_bench.config.run import Run
from nlp_bench.files import read_object, write_text
from nlp_bench.launch.prediction import REHEARSAL, prediction
from nlp_bench.marker import METRICS, write_rehearsed
from nlp_bench.measure.folder import FROM_RUN, metric_lines, switches
from nlp_bench.measure.workload import lookup

GIB = 2**30
_NO_JOB = ("queue", "job_time")  # lines of metrics.txt about a job, which a rehearsal does not have


def rehearse(run: Run, run_file: Path, run_dir: Path) -> str:
    """Rehearse `run_file` into `run_dir`: rehearsal.json, metrics.txt (a failure is a row of the table, too) and JUBE's marker; return how it went in a line."""
    (run_dir / REHEARSAL).unlink(missing_ok=True)  # of an attempt that was interrupted
    done = subprocess.run(
        [sys.executable, "-m", "nlp_bench", "rehearse", "--run", str(run_file), "--output", str(run_dir)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    sys.stderr.write(done.stderr)
    found = read_object(run_dir / REHEARSAL)
    word = "done" if found else "failed"
    last = done.stderr.strip().rpartition("\n")[2].removeprefix("nlp-bench: error: ")
    why = "" if found else last or f"nlp-bench rehearse ended with exit status {done.returncode}"
    write_text(run_dir / "rehearsal.txt", done.stdout)
    write_text(run_dir / METRICS, row(run, found, word, why))
    write_rehearsed(run_dir, f"rehearsal {word}: no job was submitted")
    return f"rehearsal {word}" + (f": {why}" if why else f", fits: {found.get('fits') or 'not known'}")


def row(run: Run, rehearsal: dict[str, Any], word: str, why: str) -> str:
    """Return the lines of metrics.txt; what is not known has none, and no key is that of a measurement."""
    record, found = json.loads(json.dumps(run.record())), prediction(run)  # as run.json has it
    values: dict[str, object] = {
        "rehearsal": word,
        **{key: lookup(record, dotted) for key, dotted in FROM_RUN.items() if key not in _NO_JOB},
        "tuning": switches(lookup(record, "tuning")),
        "virtual_pipeline": run.sizes.virtual if run.sizes.virtual > 1 else None,
        "fits": rehearsal.get("fits"),
        "rehearsed_peak_gib": _most(rehearsal, "peak_bytes"),
        "rehearsed_need_gib": _most(rehearsal, "needed_bytes") if rehearsal.get("fits") else None,
    }
    notes = [note for note in rehearsal.get("notes") or [] if isinstance(note, str)]
    values["reason"] = "; ".join(filter(None, (why, found if isinstance(found, str) else "", *notes)))
    if not isinstance(found, str):
        values |= {
            "gpu_memory_gib": f"{found.capacity_gib:g}",
            "predicted_memory_gib": f"{found.memory_gib:.1f}",
            "predicted_report_time_s": f"{found.report_s:.1f}",
            "predicted_low90_s": f"{found.low_s:.1f}",
            "predicted_high90_s": f"{found.high_s:.1f}",
            "predicted_limit": found.limits.replace(", ", "; "),
        }
    return metric_lines(values)


def _most(rehearsal: dict[str, Any], name: str) -> str | None:
    """Return the fullest rank's bytes in GiB: of its tensors, or with all else that a GPU needs."""
    counts = [rank.get(name) for rank in rehearsal.get("ranks") or [] if isinstance(rank, dict)]
    known = [count for count in counts if isinstance(count, int)]
    return f"{max(known) / GIB:.2f}" if known else None
