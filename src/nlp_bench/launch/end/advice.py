"""What a person should know and type next, for every way that a run can end: the same words in sync, watch, submit, measure and report."""

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlp_bench.config.values import clock, seconds_of
from nlp_bench.files import read_object
from nlp_bench.launch.end.ending import Ending
from nlp_bench.launch.end.remedies import remedy_of
from nlp_bench.launch.folder import scheduler_of
from nlp_bench.measure.entry import RunResult
from nlp_bench.outcome import Outcome
from nlp_bench.seal import OUTCOME
from nlp_bench.show.escape import one_line
from nlp_bench.train.checkpoint.folder import TRACKER

LOGS = ("job.out", "job.err")


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What happened, what shows it, where to read more, what to type."""

    happened: str
    """The outcome and its reasons."""
    evidence: str | None
    """The line that shows it; None where no log has one."""
    logs: tuple[Path, ...]
    """Files to look into, those that are there."""
    remedy: str
    """What to change or to look at, in one sentence."""
    commands: tuple[str, ...]
    """What to type next: each works as it stands, whatever signs the paths hold."""

    def text(self) -> str:
        """Return it in lines, each with its label; of a run that is simply well only what to type."""
        if self.happened == Outcome.VALID.value:
            return self.what_now()
        lines = [f"what happened: {self.happened}", f"evidence: {self.evidence or 'no line of the log tells'}"]
        return "\n".join([*lines, self.what_now()])

    def what_now(self) -> str:
        """Return where to look and what to type, in lines: for where outcome and evidence are said already."""
        lines = [f"log: {' and '.join(map(str, self.logs)) or 'none was written'}", f"remedy: {self.remedy}"]
        told = [] if self.happened == Outcome.VALID.value else lines
        return "\n".join([*told, *(f"next: {command}" for command in self.commands)])


def advice(ending: Ending, run_dir: Path) -> Advice:
    """Return the advice for `ending` of the run in `run_dir`."""
    remedy, words = remedy_of(ending.outcome, ending.reasons), _words(run_dir)
    commands = [_typed(command, words) for command in remedy.commands]
    return Advice(
        happened=replace(ending, evidence=None).text(),
        evidence=one_line(ending.evidence) if ending.evidence else None,
        logs=_logs(run_dir),
        remedy=remedy.text,
        commands=tuple(command for command in commands if command),
    )


def _typed(command: str, words: dict[str, str]) -> str | None:
    """Return `command` with the run's own words, None where the run lacks one."""
    names = set(re.findall(rf"\b(?:{'|'.join(words)})\b", command))
    if not all(words[name] for name in names):
        return None
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found.group()], command)


def _logs(run_dir: Path) -> tuple[Path, ...]:
    return tuple(path for name in LOGS if (path := run_dir / name).is_file())


def _words(run_dir: Path) -> dict[str, str]:
    """Return what stands for the words of `launch.end.remedies`, quoted for a shell; empty where this run has none."""
    run, scheduler = read_object(run_dir / "run.json"), scheduler_of(run_dir)
    return {
        "DIR": shlex.quote(str(run_dir)),
        "LOGS": shlex.join(map(str, _logs(run_dir))),
        "CHECKPOINTS": _checkpoints(run),
        "LONGER": _longer(str(_part(run, "launch").get("timelimit"))),
        "MODEL": _word(run, "model", "name"),
        "SYSTEM": _word(run, "system", "name"),
        "NODES": _word(run, "parallel", "nodes"),
        "QUEUES": scheduler.queues_command,
        "LOST_NODES": scheduler.lost_nodes_command,
    }


def _word(run: dict[str, Any], part: str, name: str) -> str:
    found = _part(run, part).get(name)
    return "" if found is None else shlex.quote(str(found))


def _part(run: dict[str, Any], name: str) -> dict[str, Any]:
    found = run.get(name)
    return found if isinstance(found, dict) else {}


def _checkpoints(run: dict[str, Any]) -> str:
    """Return the folder that the run has saved a checkpoint to, "" where there is none."""
    given = _part(run, "tuning").get("train_args")
    words = [str(word) for word in given] if isinstance(given, list) else []
    folder = words[words.index("--save") + 1] if "--save" in words[:-1] else ""
    return shlex.quote(folder) if folder and (Path(folder) / TRACKER).is_file() else ""


def _longer(timelimit: str) -> str:
    """Return twice a time limit as HH:MM:SS, "" where it is none."""
    limit_s = seconds_of(timelimit)
    return clock(2 * round(limit_s)) if limit_s else ""


def short(ending: Ending, run_dir: Path) -> str:
    """Return logs, remedy and the first command in one line, for lists of runs that say outcome and evidence themselves."""
    found = advice(ending, run_dir)
    logs = f"log: {' and '.join(map(str, found.logs)) or 'none'}"
    return "; ".join([logs, found.remedy, *(f"next: {command}" for command in found.commands[:1])])


def of_entry(entry: RunResult) -> str | None:
    """Return the same for a row of a report that stands for a run folder of ours and is not VALID; None for any other."""
    folder = Path(entry.source)
    if entry.outcome is Outcome.VALID or not (folder / OUTCOME).is_file():
        return None
    evidence = read_object(folder / OUTCOME).get("evidence")
    shown = f"evidence: {one_line(evidence)}; " if isinstance(evidence, str) and evidence else ""
    return shown + short(Ending(outcome=entry.outcome, reasons=list(entry.reason_texts)), folder)
