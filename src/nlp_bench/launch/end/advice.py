"""What a person should know and type next, for every way that a run can end: the same words in sync, watch, submit, measure and report.

The remedies are data in which the run's own words are still missing. In a command DIR stands for the run's folder, LOGS for its logs,
CHECKPOINTS for the folder of checkpoints that it has left, LONGER for twice its time limit, MODEL, SYSTEM and NODES for what was trained
where, QUEUES and LOST_NODES for the scheduler's commands that show them. A command whose words this run does not have is left out.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlp_bench.config.catalog import names
from nlp_bench.config.run import value_of
from nlp_bench.config.values import clock, seconds_of
from nlp_bench.escape import one_line
from nlp_bench.files import read_object
from nlp_bench.immutable import immutable
from nlp_bench.launch.end.ending import Ending
from nlp_bench.launch.submission import scheduler_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.workload import lookup
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.seal import LOG, OUTCOME, RUN
from nlp_bench.train.checkpoint.folder import TRACKER

NO_RETRY = "it would end the same way"
REPORT, LOOK = "nlp-bench report DIR --explain", "tail -n 50 LOGS"
RANKS = "tail -n 3 DIR/ranks/*/*/*/stderr.log"  # where torchrun's --log_dir has each rank's own output
AGAIN = "nlp-bench submit --run DIR/run.json"  # the same as another job in a new folder: an ended one takes no second
GO_ON, IN_MORE_TIME = AGAIN + " --load CHECKPOINTS", AGAIN + " --timelimit LONGER"
LOST_LOG = "run it again, and keep programs that clean up or rotate logs away from its folder; what each rank printed is in ranks"
UNUSABLE = "its number must not be used: "
NOT_FINITE = UNUSABLE + "a loss that is not finite asks for another precision, or a smaller learning rate"
CLOCK = f"{UNUSABLE}the time of day of its lines and the times that they log disagree: where its nodes' clock was set meanwhile, run it again"

REMEDIES: dict[tuple[Outcome, str], tuple[str, ...]] = {
    (Outcome.VALID, ""): ("none is needed", "nlp-bench measure DIR", REPORT),
    (Outcome.VALID, "completed-with-errors"): ("the number stands; what broke after the training is in the evidence", REPORT, LOOK),
    (Outcome.MEASURED, ""): ("give the whole log of a run that reached its last iteration; in a run folder no run ends so", REPORT),
    (Outcome.INVALID, ""): (UNUSABLE + "look at what the reason names, mend that and run it again", REPORT, AGAIN),
    (Outcome.INVALID, "not-finite"): (NOT_FINITE, REPORT, LOOK),
    (Outcome.INVALID, "loss-not-finite"): (NOT_FINITE, REPORT, LOOK),
    (Outcome.INVALID, "broken-rule"): (UNUSABLE + "do what the rule asks for and run it again", REPORT, AGAIN),
    (Outcome.INVALID, "stamps-vs-time-slow"): (CLOCK, REPORT, AGAIN),
    (Outcome.INVALID, "stamps-vs-time-fast"): (CLOCK, REPORT, AGAIN),
    (Outcome.INVALID, "broken-seal"): (
        "put the original of the file that is named back, or repeat the command where its end is only not seen yet; else run it again", REPORT, AGAIN,
    ),
    (Outcome.INVALID, "no-beginning"): (LOST_LOG, RANKS, AGAIN),
    (Outcome.INVALID, "suspended"): ("run it again where nobody suspends it: another --queue, or --exclusive", AGAIN + " --exclusive"),
    (Outcome.INVALID, "changed-outcome"): (
        "decide anew, from the log and from what the scheduler and the job script said",
        "rm DIR/outcome.json DIR/ready", "nlp-bench sync DIR",
    ),
    (Outcome.REFUSED, ""): ("give the option that the reason names: the log does not hold it", "nlp-bench report --help", REPORT),
    (Outcome.INCOMPLETE, ""): (
        "look why it stopped before its iterations were done; a checkpoint lets it go on, a longer --timelimit repeat it",
        LOOK, GO_ON, IN_MORE_TIME,
    ),
    (Outcome.INCOMPLETE, "other-log"): (
        "ask the site for a way without its --output, or put Slurm's own sbatch first on PATH, then run it again", "command -v sbatch", AGAIN,
    ),
    (Outcome.INCOMPLETE, "lost-log"): (LOST_LOG, "tail -n 3 DIR/ranks/*/*/*/stdout.log", AGAIN),
    (Outcome.FAILED, ""): ("mend what the evidence names, then submit it again; no retry by itself: " + NO_RETRY, LOOK, AGAIN),
    (Outcome.FAILED, "stalled"): (
        "a rank hangs: look at its own log and at its node; a run that is slow by nature asks for --stall-least",
        RANKS, LOOK, AGAIN,
    ),
    (Outcome.FAILED, "rendezvous"): (
        "the nodes did not find each other: look at names, ports and firewall between them (on one node: ip link show lo), or ask for --join-timeout",
        "nlp-bench doctor --checks names --system SYSTEM", LOOK, AGAIN,
    ),
    (Outcome.FAILED, "controller"): (
        "not the run's fault: the controller was away, or was killed and came back without the job; submit it again", AGAIN, LOOK,
    ),
    (Outcome.FAILED, "killed-launcher"): (
        "somebody, or Linux for lack of memory (dmesg tells), killed nlp-bench submit, or its disk was full or read-only (df -h); its training was ended with it",
        AGAIN, LOOK,
    ),
    (Outcome.FAILED, "early-exit"): ("look at the log of the rank that is named: it left by itself", RANKS, LOOK, AGAIN),
    (Outcome.FAILED, "one-node"): (
        "it failed on the node that is named, before it trained, when the others were well: where the node is at fault (a prolog, a mount), leave it out (--sbatch-arg=--exclude=NODE) and tell its operator",
        LOOK, "LOST_NODES", AGAIN,
    ),
    (Outcome.FAILED, "no-output"): (
        "the run's folder is missing or not writable on the nodes: name one on their file system with --run-dir",
        "ls -ld DIR", AGAIN,
    ),
    (Outcome.FAILED, "killed"): (
        "mostly Linux, out of memory (dmesg of the node tells): ask for more (--mem of a job, the limit of a container), or for fewer ranks per node; or a limit of CPU time (`ulimit -t`)", LOOK, AGAIN,
    ),
    (Outcome.FAILED, "cpu-time"): (
        "its CPU time was used up: `ulimit -t` shows the limit (of a login node, h_cpu of Grid Engine); run it where there is none", LOOK, AGAIN,
    ),
    (Outcome.FAILED, "bus-error"): (
        "memory that is a file failed: /dev/shm was full (`df -h /dev/shm`; of a container: --shm-size), or a data file was cut or lost meanwhile", LOOK, AGAIN,
    ),
    (Outcome.OUT_OF_MEMORY, ""): (
        "a layout that needs less: a smaller --micro-batch-size, a larger --tp or --pp, --recompute-granularity full; no retry: " + NO_RETRY,
        "nlp-bench plan --model MODEL --system SYSTEM --nodes NODES", LOOK,
    ),
    (Outcome.OUT_OF_MEMORY, "host-memory"): (
        "more host memory: --mem (0: all of the node's), or fewer ranks per node; no retry: " + NO_RETRY, AGAIN + " --mem 0", LOOK,
    ),
    (Outcome.TIMEOUT, ""): (
        "a longer --timelimit, fewer --iterations, or --chain N: jobs that go on from each other's checkpoint",
        GO_ON, IN_MORE_TIME, LOOK,
    ),
    (Outcome.TIMEOUT, "hung-at-its-end"): (
        "something kept running after the training until the time limit, which a longer one does not mend: look at what each rank printed last",
        RANKS, LOOK, AGAIN,
    ),
    (Outcome.TIMEOUT, "lowered-limit"): (
        "ask the site for the time, take another --queue or fewer --iterations, or --chain N: jobs that go on from each other's checkpoint",
        "QUEUES", GO_ON, LOOK,
    ),
    (Outcome.TIMEOUT, "told-by-signal"): (
        "it was told that its time was nearly over; with --save it leaves a checkpoint to go on from", GO_ON, IN_MORE_TIME, LOOK,
    ),
    (Outcome.CANCELLED, ""): ("somebody, or a limit of the queue, took it out; submit it again if that was not meant", GO_ON, AGAIN),
    (Outcome.CANCELLED, "not-started"): (
        "a prolog of Slurm's failed, or somebody took it out just then; submit it again if that was not meant", "LOST_NODES", AGAIN,
    ),
    (Outcome.CANCELLED, "ended-here"): (
        "somebody ended it, or its terminal did (a lost ssh): in tmux, or with nohup, it outlives that; submit it again if that was not meant",
        GO_ON, AGAIN,
    ),
    (Outcome.CANCELLED, "ended-in-job"): (
        "mostly the walltime of that job was used up (qstat -f, bjobs -l or qacct -j tell): give it a longer one, or train fewer --iterations",
        GO_ON, AGAIN,
    ),
    (Outcome.CANCELLED, "hang-up"): (
        "its terminal went away (a lost ssh, say): start it in tmux or with nohup, then it outlives that; submit it again", GO_ON, AGAIN,
    ),
    (Outcome.CANCELLED, "max-pending"): (
        "ask for fewer --nodes, another --queue or a shorter --timelimit, or let it wait (--max-pending 0)",
        "QUEUES", AGAIN + " --max-pending 0",
    ),
    (Outcome.PREEMPTED, ""): (
        "another job had precedence; --retries N submits it anew by itself, another --queue may not preempt",
        GO_ON, AGAIN + " --retries 2",
    ),
    (Outcome.NODE_FAIL, ""): (
        "leave the node out (--sbatch-arg=--exclude=NODE) and tell its operator; --retries N submits it anew by itself",
        "LOST_NODES", GO_ON, AGAIN + " --retries 2",
    ),
    **{
        (lost, "retry-refused"): ("the queue refused the job of its retry: once what it says is mended, or over, submit it again", GO_ON, AGAIN)
        for lost in (Outcome.PREEMPTED, Outcome.NODE_FAIL)
    },
    (Outcome.UNKNOWN, ""): ("no one knows how it ended: the log is all there is, and it carries no number; run it again", LOOK, AGAIN),
    (Outcome.UNKNOWN, "unreadable"): (
        "a record or the log could not be read: mend what the reason names, then look again; the run itself may be well", REPORT,
    ),
}  # fmt: skip
"""What to change or to look at, in one sentence, and what to type next, the first one first: of each outcome, and of those of its reasons
that ask for something else, by their codes."""


def remedy_of(outcome: Outcome, reasons: Sequence[Reason]) -> tuple[str, ...]:
    """Return the sentence and the commands against `outcome`; the first of `reasons` with a remedy of its own decides."""
    keys = ((outcome, reason.code) for reason in reasons)
    return next((REMEDIES[key] for key in keys if key in REMEDIES), REMEDIES[outcome, ""])


@immutable
class Advice:
    """What happened, what shows it, where to read more, what to type."""

    happened: str  # the outcome and its reasons
    is_well: bool  # whether that is VALID, and nothing else is to be said
    evidence: str | None  # the line that shows it; None where no log has one
    logs: tuple[Path, ...]  # files to look into, those that are there
    remedy: str  # what to change or to look at, in one sentence
    commands: tuple[str, ...]  # what to type next: each works as it stands, whatever signs the paths hold

    def text(self) -> str:
        """Return it in lines, each with its label; of a run that is simply well only what to type."""
        if self.is_well:
            return self.what_now()
        lines = [f"what happened: {self.happened}", f"evidence: {self.evidence or 'no line of the log tells'}"]
        return "\n".join([*lines, self.what_now()])

    def what_now(self) -> str:
        """Return where to look and what to type, in lines: for where outcome and evidence are said already."""
        lines = [f"log: {' and '.join(map(str, self.logs)) or 'none was written'}", f"remedy: {self.remedy}"]
        known = [] if self.is_well else lines
        return "\n".join([*known, *(f"next: {command}" for command in self.commands)])


def advice(ending: Ending, run_dir: Path) -> Advice:
    """Return the advice for `ending` of the run in `run_dir`."""
    text, *commands = remedy_of(ending.outcome, ending.reasons)
    logs = tuple(path for name in (LOG, "job.err") if (path := run_dir / name).is_file())
    words = _words(run_dir, logs)
    pattern = re.compile(rf"\b({'|'.join(words)})\b")
    if words["CHECKPOINTS"]:  # beginning anew would be refused: it would write among them
        commands = [
            GO_ON + one.removeprefix(GO_ON).removeprefix(AGAIN) if one.startswith(AGAIN) else one for one in commands
        ]
    return Advice(
        happened=replace(ending, evidence=None).text(),
        is_well=ending.outcome is Outcome.VALID and not ending.reasons,
        evidence=one_line(ending.evidence) if ending.evidence else None,
        logs=logs,
        remedy=text,
        commands=tuple(
            pattern.sub(lambda found: words[found.group()], command)
            for command in dict.fromkeys(commands)
            if all(words[name] for name in pattern.findall(command))
        ),
    )


def _words(run_dir: Path, logs: Sequence[Path]) -> dict[str, str]:
    """Return what stands for the words of REMEDIES, quoted for a shell; empty where this run has none."""
    run, scheduler = read_object(run_dir / RUN), scheduler_of(run_dir)
    limit_s = seconds_of(str(lookup(run, "launch.timelimit")))
    found = {"NODES": lookup(run, "parallel.nodes")}
    for word, kind in {"MODEL": "models", "SYSTEM": "systems"}.items():
        # The name of a file that was given by its path finds nothing.
        name = lookup(run, f"{kind.removesuffix('s')}.name")
        found[word] = name if name in names(kind) else None
    return {
        "DIR": shlex.quote(str(run_dir)),
        "LOGS": shlex.join(map(str, logs)),
        "CHECKPOINTS": _checkpoints(lookup(run, "tuning.train_args"), lookup(run, "training.iterations")),
        "LONGER": clock(2 * round(limit_s)) if limit_s else "",
        **{word: "" if value is None else shlex.quote(str(value)) for word, value in found.items()},
        "QUEUES": scheduler.queues_command,
        "LOST_NODES": scheduler.lost_nodes_command,
    }


def _checkpoints(train_args: Any, iterations: Any) -> str:
    """Return the folder that the run has saved a checkpoint to, "" where there is none, or nothing is left to train."""
    words = [str(word) for word in train_args] if isinstance(train_args, list) else []
    folder = value_of(words, "--save")
    if not folder or not isinstance(iterations, int):
        return ""
    try:
        saved = int((Path(folder) / TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return shlex.quote(folder) if saved < iterations else ""


def short(ending: Ending, run_dir: Path) -> str:
    """Return logs, remedy and the first command in one line, for lists of runs that say outcome and evidence themselves."""
    found = advice(ending, run_dir)
    logs = f"log: {' and '.join(map(str, found.logs)) or 'none'}"
    return "; ".join([logs, found.remedy, *(f"next: {command}" for command in found.commands[:1])])


def of_entry(entry: RunResult) -> str | None:
    """Return evidence, logs, remedy and the first command in one line for a row of a report whose run folder is ours and not VALID; None for any other."""
    folder = Path(entry.source)
    if entry.outcome is Outcome.VALID or not (folder / OUTCOME).is_file():
        return None
    evidence = read_object(folder / OUTCOME).get("evidence")
    shown = f"evidence: {one_line(evidence)}; " if isinstance(evidence, str) and evidence else ""
    return shown + short(Ending(outcome=entry.outcome, reasons=entry.reasons), folder)
