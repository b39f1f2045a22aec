"""Follow runs to their end: one line per run whenever it has moved."""

import sys
import time
from pathlib import Path

from nlp_bench.config.run import Run, read_run
from nlp_bench.launch.evidence import last_attempt
from nlp_bench.launch.runs import find_runs
from nlp_bench.launch.sync import sync
from nlp_bench.outcome import Outcome


def watch(paths: list[Path], *, every_s: float, once: bool, while_pid: int | None, only_new: bool) -> int:
    """Look every `every_s` seconds until all runs have ended, or `while_pid` has; return 0 when all are VALID."""
    earlier = set(_existing(paths)) if only_new else set()
    shown: dict[Path, str] = {}
    while True:
        alive = while_pid is not None and Path(f"/proc/{while_pid}").exists()
        folders = [folder for folder in _existing(paths) if folder not in earlier]
        states = {folder: _state(folder) for folder in folders}
        for folder, (_, line) in states.items():
            if shown.get(folder) != line:
                print(f"{_short(folder, paths)}: {line}", file=sys.stderr, flush=True)
                shown[folder] = line
        if not states and while_pid is None:
            print("nlp-bench: no submitted run below " + " ".join(map(str, paths)), file=sys.stderr)
            return 1
        outcomes = [outcome for outcome, _ in states.values()]
        if once or (not alive and (while_pid is not None or None not in outcomes)):
            return 0 if outcomes and all(outcome is Outcome.VALID for outcome in outcomes) else 1
        time.sleep(every_s)


def _existing(paths: list[Path]) -> list[Path]:
    return find_runs(path for path in paths if path.is_dir())


def _short(folder: Path, paths: list[Path]) -> str:
    """Return the folder as seen from the path that was asked for: 000000/000003_train/work."""
    above = next((path.resolve() for path in paths if folder.is_relative_to(path.resolve())), folder.parent)
    return str(folder.relative_to(above.parent))


def _state(folder: Path) -> tuple[Outcome | None, str]:
    ending, state = sync(folder)
    if ending is not None:
        return ending.outcome, ending.text() + ("" if ending.outcome is Outcome.VALID else f" (log: {folder}/job.err)")
    return None, _progress(read_run(folder), folder) or state


def _progress(run: Run, folder: Path) -> str:
    """Return "iteration 34/40, 12345 tokens/s, 8 s left"; empty while the log has no line."""
    records = last_attempt(folder / "job.out")
    if not records or not records[-1].elapsed_s:
        return ""
    iteration, elapsed_s = records[-1].iteration, records[-1].elapsed_s
    tokens = run.batch.global_batch_size * run.batch.sequence_length
    left_s = (run.training.iterations - iteration) * elapsed_s
    return f"iteration {iteration}/{run.training.iterations}, {tokens / elapsed_s:.0f} tokens/s, {left_s:.0f} s left"
