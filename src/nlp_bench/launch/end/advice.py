"""What a person should know and type next, for every way that a run can end: the same words in sync, watch, submit, measure and report.

The remedies are data in which the run's own words are still missing. In a command DIR stands for the run's folder, LOGS for its logs,
CHECKPOINTS for the folder of checkpoints that it has left, LONGER for twice its time limit, MODEL, SYSTEM and NODES for what was trained
where, QUEUES and LOST_NODES for the scheduler's commands that show them. A command whose words this run does not have is left out.
"""

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlp_bench.config.values import clock, seconds_of
from nlp_bench.escape import one_line
from nlp_bench.files import read_object
from nlp_bench.launch.end.ending import Ending
from nlp_bench.launch.folder import scheduler_of
from nlp_bench.measure.entry import RunResult
from nlp_bench.outcome import Outcome
from nlp_bench.seal import OUTCOME
from nlp_bench.train.checkpoint.folder import TRACKER

NO_RETRY = "it would end the same way"
REPORT, LOOK = "nlp-bench report DIR --explain", "tail -n 50 LOGS"
RANKS = "tail -n 3 DIR/ranks/*/*/*/stderr.log"
"""Where torchrun's --log_dir has each rank's own output."""
AGAIN = "nlp-bench submit --run DIR/run.json"
"""The same training in a new folder, as another job: an ended folder takes no second one."""
GO_ON = AGAIN + " --load CHECKPOINTS"


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What helps, and the commands."""

    text: str
    """What to change or to look at, in one sentence."""
    commands: tuple[str, ...]
    """What to type next, the first one first."""
    reason: str = ""
    """Pattern of a reason for which this takes the place of the outcome's own remedy; empty: it is that one."""


REMEDIES: dict[Outcome, Remedy] = {
    Outcome.VALID: Remedy(text="none is needed", commands=("nlp-bench measure DIR", REPORT)),
    Outcome.MEASURED: Remedy(
        text="give the whole log of a run that reached its last iteration; in a run folder no run ends so", commands=(REPORT,)
    ),
    Outcome.INVALID: Remedy(
        text="its number must not be used: a loss that is not finite asks for another precision, a broken rule for what the rule names",
        commands=(REPORT,),
    ),
    Outcome.REFUSED: Remedy(
        text="give the option that the reason names: the log does not hold it", commands=("nlp-bench report --help", REPORT)
    ),
    Outcome.INCOMPLETE: Remedy(
        text="look why it stopped before its iterations were done; a checkpoint lets it go on, a longer --timelimit repeat it",
        commands=(LOOK, GO_ON, AGAIN + " --timelimit LONGER"),
    ),
    Outcome.FAILED: Remedy(
        text="mend what the evidence names, then submit it again; no retry by itself: " + NO_RETRY, commands=(LOOK, AGAIN)
    ),
    Outcome.OUT_OF_MEMORY: Remedy(
        text="a layout that needs less: a smaller --micro-batch-size, a larger --tp or --pp, --recompute-granularity full; no retry: " + NO_RETRY,
        commands=("nlp-bench plan --model MODEL --system SYSTEM --nodes NODES", LOOK),
    ),
    Outcome.TIMEOUT: Remedy(
        text="a longer --timelimit, fewer --iterations, or --chain N: jobs that go on from each other's checkpoint",
        commands=(GO_ON, AGAIN + " --timelimit LONGER", LOOK),
    ),
    Outcome.CANCELLED: Remedy(
        text="somebody, or a limit of the queue, took it out; submit it again if that was not meant", commands=(GO_ON, AGAIN)
    ),
    Outcome.PREEMPTED: Remedy(
        text="another job had precedence; --retries N submits it anew by itself, another --queue may not preempt",
        commands=(GO_ON, AGAIN + " --retries 2"),
    ),
    Outcome.NODE_FAIL: Remedy(
        text="leave the node out (--sbatch-arg=--exclude=NODE) and tell its operator; --retries N submits it anew by itself",
        commands=("LOST_NODES", GO_ON, AGAIN + " --retries 2"),
    ),
    Outcome.UNKNOWN: Remedy(
        text="no one knows how it ended: the log is all there is, and it carries no number; run it again", commands=(LOOK, AGAIN)
    ),
}  # fmt: skip

SPECIAL: dict[Outcome, tuple[Remedy, ...]] = {
    Outcome.VALID: (
        Remedy(
            reason="completed with errors",
            text="the number stands; what broke behind the training is in the evidence",
            commands=(REPORT, LOOK),
        ),
    ),
    Outcome.INVALID: (
        Remedy(
            reason="the chain of evidence is broken",
            text="put the original of the file that is named back; where there is none, the run has to be done again",
            commands=(REPORT, AGAIN),
        ),
        Remedy(
            reason="suspended the job",
            text="run it again where nobody suspends it: another --queue, or --exclusive",
            commands=(AGAIN + " --exclusive",),
        ),
        Remedy(
            reason="was changed after the run had ended",
            text="decide anew, from the log and from what the scheduler and the job script said",
            commands=("rm DIR/outcome.json DIR/ready", "nlp-bench sync DIR"),
        ),
    ),
    Outcome.INCOMPLETE: (
        Remedy(
            reason="it was (removed|emptied)",
            text="run it again, and keep programs that clean up or rotate logs away from its folder; what each rank printed is in ranks",
            commands=("tail -n 3 DIR/ranks/*/*/*/stdout.log", AGAIN),
        ),
    ),
    Outcome.OUT_OF_MEMORY: (
        Remedy(
            reason=r"killed it for more host memory|: (?i:out_?\s?of_?\s?memory)",
            text="more host memory: --mem (0: all of the node's), or fewer ranks per node; no retry: " + NO_RETRY,
            commands=(AGAIN + " --mem 0", LOOK),
        ),
    ),
    Outcome.FAILED: (
        Remedy(
            reason="stalled",
            text="a rank hangs: look at its own log and at its node; a run that is slow by nature asks for --stall-least",
            commands=(RANKS, LOOK, AGAIN),
        ),
        Remedy(
            reason="rendezvous",
            text="the nodes did not find each other: look at names, ports and firewall between them, or ask for --join-timeout",
            commands=("nlp-bench doctor --checks names --system SYSTEM", LOOK, AGAIN),
        ),
        Remedy(
            reason="controller (did not answer|no longer knew)",
            text="not the run's fault: the controller was away, or was killed and came back without the job; submit it again",
            commands=(AGAIN, LOOK),
        ),
        Remedy(
            reason="the launcher was killed",
            text="somebody, or Linux for lack of memory (dmesg tells), killed nlp-bench submit, or its disk was full or read-only (df -h); its training was ended with it",
            commands=(AGAIN, LOOK),
        ),
        Remedy(
            reason="ended first",
            text="look at the log of the rank that is named: it left by itself",
            commands=(RANKS, LOOK, AGAIN),
        ),
        Remedy(
            reason="job.out cannot be opened",
            text="the run's folder is missing or not writable on the nodes: name one on their file system with --run-dir",
            commands=("ls -ld DIR", AGAIN),
        ),
        Remedy(
            reason="killed by signal 9",
            text="mostly Linux, out of memory (dmesg of the node tells): ask for more with --mem, or for fewer ranks per node",
            commands=(LOOK, AGAIN),
        ),
    ),
    Outcome.TIMEOUT: (
        Remedy(
            reason="by signal",
            text="it was told that its time was nearly over; with --save it leaves a checkpoint to go on from",
            commands=(GO_ON, AGAIN + " --timelimit LONGER", LOOK),
        ),
    ),
    Outcome.CANCELLED: (
        Remedy(
            reason="--max-pending",
            text="ask for fewer --nodes, another --queue or a shorter --timelimit, or let it wait (--max-pending 0)",
            commands=("QUEUES", AGAIN + " --max-pending 0"),
        ),
    ),
}
"""Of each outcome those whose reason says more; the first whose pattern is found in a reason is taken."""


def remedy_of(outcome: Outcome, reasons: list[str]) -> Remedy:
    """Return what helps against `outcome` for these `reasons`."""
    found = (one for one in SPECIAL.get(outcome, ()) if any(re.search(one.reason, text) for text in reasons))
    return next(found, REMEDIES[outcome])


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
        known = [] if self.happened == Outcome.VALID.value else lines
        return "\n".join([*known, *(f"next: {command}" for command in self.commands)])


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
    """Return what stands for the words of REMEDIES, quoted for a shell; empty where this run has none."""
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
