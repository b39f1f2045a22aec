"""How a program ended, as far as its log shows: an error, a signal or the scheduler, or its own message that it was done.

Only lines after the last record of a training count: an error after which the training went on did not end it. The patterns are those
of Python, PyTorch, NCCL, torchrun, DeepSpeed's launcher, Slurm, PBS, LSF and Open MPI; a comment names the source of each end mark. The
launcher looks for some of them too (`launch.end.log_facts`).
"""

import math
from typing import TYPE_CHECKING

from nlp_bench.logs.clean import stamp_s
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import late
from nlp_bench.logs.record import EndMark
from nlp_bench.logs.scan import Line
from nlp_bench.outcome import Outcome

if TYPE_CHECKING:
    import re

NOTICE = late(
    r"\*\*\* (?P<what>JOB|STEP) (?P<job>[^\s.]+)\S* .*?(?:CANCELLED|FAILED) AT (?P<at>\S+)(?: DUE TO (?P<cause>[A-Z ]+?)(?:,[^*]*)?)? \*\*\*"
)
"""slurmstepd's notice in the error file, for example: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"""
CAUSES = {
    None: Outcome.CANCELLED,
    "TIME LIMIT": Outcome.TIMEOUT,
    "PREEMPTION": Outcome.PREEMPTED,
    "NODE FAILURE": Outcome.NODE_FAIL,
    "JOB REQUEUE": Outcome.PREEMPTED,
    "DEADLINE": Outcome.TIMEOUT,
}
FAILURES = {
    Outcome.OUT_OF_MEMORY: (
        late(
            r"OutOfMemoryError|CUDA out of memory|oom[-_]kill|OOM Killed|Out Of Memory|std::bad_alloc|DefaultCPUAllocator: can't allocate"
            r"|\bMemoryError\b|[Ee]xceeded (?:job )?memory limit"
        ),
        late(
            r"\bOutOfMemoryError: |(?:CUDA|HIP) out of memory\. Tried|[Dd]etected \d+ oom[-_]kill event|\bOOM ?Killed\b|std::bad_alloc"
            r"|RESOURCE_EXHAUSTED: Out of memory|srun: error: .*: Out Of Memory|[Ee]xceeded (?:job )?memory limit|\bTERM_MEMLIMIT\b"
            r"|\bOut of memory: Killed process"  # the kernel
            r"|=>> PBS: job killed: p?v?mem\b|\bCgroup mem(?:sw)? limit exceeded"  # Torque and PBS, the cgroups hook of PBS
        ),
    ),
}
"""How a program failed, to its words where it is known to have failed (some are in warnings, too), and to those that by themselves say so."""
NODE_FAILURE = late(
    r"srun: error: (?:.*?Node failure on \S+.*|Task launch for \S+ failed on node \S+: "
    r"(?:Communication (?:connection|shutdown) failure|Message (?:send|receive) failure|Socket timed out|Zero Bytes were transmitted).*)"
)
"""srun's messages, logged before the controller gives the node up: `_node_fail_handler` of srun; or the node took no task because its
slurmd was down or went down meanwhile: the communication errors in slurm_errno.c of Slurm 22.05."""
OUTSIDE = frozenset({Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.PREEMPTED})
"""Ends caused by the scheduler or a person: the iterations before them are sound."""

_TRACEBACK = "Traceback (most recent call last)"
_HARMLESS = late(r"Exception ignored in|Exception in thread|--- Logging error ---")
"""Lines before a traceback that does not end the process."""
_EXCEPTION = late(r"(?:^|[\s\]>:])(?P<text>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt)(?:: .+)?)$")
_SIGNALLED = late(r"KeyboardInterrupt|SignalException|got signal: (?:2|10|12|15)\b")
_FORMS = (
    (Outcome.NODE_FAIL, NODE_FAILURE),
    *((outcome, form) for outcome, (_, form) in FAILURES.items()),
    (Outcome.TIMEOUT, late(r"=>> PBS: job killed: walltime|\bTERM_RUNLIMIT\b|\bAirflowTaskTimeout\b")),
    (
        Outcome.CANCELLED,
        late(
            r"Received (?:\d+|Signals\.SIG\w+) death signal|exiting program after receiving SIG|process received SIGTERM"
            r"|srun: error: .*: Terminated$|=>> PBS: job killed|\bTERM_OWNER\b|^(?:\[\w+\]:? ?)?KeyboardInterrupt$"
        ),
    ),
    (
        Outcome.FAILED,
        late(
            r"\bChildFailedError\b|exits with return code = -?[1-9]"
            r"|srun: error: .*: (?:Exited with exit code|Segmentation fault|Aborted|Killed|Bus error|Floating point)"
            r"|Watchdog caught collective operation timeout|watchdog thread terminated with exception|terminate called after throwing"
            r"|\b(?:CUDA|HIP) (?:error: |ERROR\])(?!.*cuInit)|Caught signal \d+ \(|Segmentation fault|\bFatal Python error: |\bBus error\b"
            r"|\bline \d+: +\d+ (?:Killed|Aborted)|exited on signal \d+|MPI_ABORT was invoked|returned a non-zero exit code"
            r"|\bMemory access fault by GPU|\bHSA_STATUS_ERROR_\w+:|^(?:\[\w+\]:? ?)?Killed$|\*\*\* Process received signal"  # ROCm, bash, Open MPI
            r"|\b(?:double free or corruption|free\(\): invalid|malloc\(\): |corrupted size vs\. prev_size)"  # glibc
            r"|^Exited with exit code [1-9]|\bProcess completed with exit code [1-9]|\bJob failed: exit "  # LSF, GitHub's runner, GitLab's
            r"|\bCommand exited with return code -?[1-9]"  # Airflow
            r"|\bDist(?:Backend|Network|Store)Error: |\bfailed \(exitcode: -?[1-9]"  # PyTorch, torchrun
            r"|(?:^|\]: ?)(?:OSError: \[Errno (?:5|28|122)\]|PermissionError: \[Errno 13\])"
        ),
    ),
)
"""Outcome to the messages of what ends a process, none of which is also in a warning."""
_ALL_DONE = r"training finished: (\d+) iterations|\[after training is done\]"
_NUM_DONE = late(_ALL_DONE)
"""The marks that say which iteration was the last: our trainer's, and Megatron-LM's after the last of all."""
_FINISHED = late(
    rf"{_ALL_DONE}"
    r"|\[exiting program (?:at iteration \d+|after [\d.]+ minutes)\]"  # NVIDIA/Megatron-LM training.py
    r"|\bTraining (?:is )?(?:completed|complete|finished|done)\b(?! after 0)"  # torchtitan, OLMo, transformers, PaddleNLP, Cerebras
    r"|\.Training Over!"  # MindFormers callback.py
    r"|'train_steps_per_second': |\btrain_steps_per_second +="  # transformers trainer_utils.py, speed_metrics
    r"|`Trainer\.fit` stopped: `max_(?:steps|epochs)="  # Lightning, NeMo
    r"|\bdone training in [\d.]+ seconds"  # fairseq_cli/train.py
    r'|"key": "run_stop".*"status": "success"'  # MLPerf logging
    r"|\bProcess \d+ exits successfully"  # DeepSpeed launcher/launch.py
    r"|^Training time: [\d.]+s|^Total training time: "  # litgpt finetune, nanochat
)
_MAX_MARKS, _MAX_TEXT = 10_000, 2048


def meaning(notice: "re.Match[str]") -> Outcome:
    """Return what slurmstepd's notice means."""
    return CAUSES.get(notice["cause"], Outcome.CANCELLED)


def failure(lines: list[str]) -> Outcome:
    """Return how a program that has failed did so, FAILED where its `lines` tell no more."""
    return next((one for one, (form, _) in FAILURES.items() if any(map(form.search, lines))), Outcome.FAILED)


class _Parser(Parser):
    """Reports the end marks; the exception of a traceback is some lines below it."""

    def __init__(self) -> None:
        self.open: tuple[Line, bool] | None = None  # a traceback without its exception yet, and whether it is harmless
        self.harmless_line = -_MAX_MARKS

    def take(self, line: Line, findings: Findings) -> None:
        text = line.text[:_MAX_TEXT].decode(errors="replace").rstrip()
        if _HARMLESS.search(text):
            self.harmless_line = line.number
        elif _TRACEBACK in text:
            self._close(findings)
            self.open = line._replace(text=b""), line.number - self.harmless_line <= 3
        elif self.open and (exception := _EXCEPTION.search(text)):
            (_, is_harmless), self.open = self.open, None
            what = exception["text"]
            if not is_harmless:
                _add_mark(findings, line, Outcome.CANCELLED if _SIGNALLED.search(what) else failure([what]), what)
        elif outcome := _outcome_of(text):
            _add_mark(findings, line, outcome, text)

    def _close(self, findings: Findings) -> None:
        if self.open and not self.open[1]:
            _add_mark(findings, self.open[0], Outcome.FAILED, _TRACEBACK)
        self.open = None

    def finish(self, findings: Findings) -> None:
        self._close(findings)


def _add_mark(findings: Findings, line: Line, outcome: Outcome, text: str) -> None:
    if len(findings.ends) >= _MAX_MARKS:
        del findings.ends[: _MAX_MARKS // 2]  # the end of a log is what counts
    text = text.strip()[:300]
    found = _NUM_DONE.search(text)
    num_done = float(found[1] or math.inf) if found else None
    notice = NOTICE.search(text)
    ended_s = stamp_s(notice["at"].encode() if notice else line.text)
    findings.ends.append(EndMark(outcome, line.offset, line.number, text, num_done, ended_s))


def _outcome_of(text: str) -> Outcome | None:
    """Return the outcome that a line by itself shows: VALID for a training that is done, None for no end mark."""
    if notice := NOTICE.search(text):
        return meaning(notice)
    if _FINISHED.search(text):
        return Outcome.VALID
    return next((outcome for outcome, form in _FORMS if form.search(text)), None)


def decisive(marks: "tuple[EndMark, ...]") -> EndMark | None:
    """Return the mark that shows how a program ended, of those after its last record; None where there is none.

    The first one is the cause, later ones follow from it; but a later one may name the failure more exactly (memory, a node), and
    the scheduler's notice explains a signal.
    """
    first = next(iter(marks), None)
    if first is None or first.outcome is Outcome.VALID:
        return first
    exact = {
        Outcome.FAILED: (*FAILURES, Outcome.NODE_FAIL),
        Outcome.CANCELLED: (Outcome.TIMEOUT, Outcome.PREEMPTED, Outcome.NODE_FAIL),
    }.get(first.outcome, ())
    return next((mark for mark in marks if mark.outcome in exact), first)


ENDINGS = Dialect(
    name="endings",
    needles=(  # few of them, each is searched for in every line that any dialect selects; Slurm's own lines all hold "error"
        b"rror", b"Traceback", b"Exception", b"Interrupt", b"atchdog", b"terminate called", b"egmentation fault", b"exited on signal",
        b"MPI_ABORT", b"non-zero exit", b"bad_alloc", b"return code", b"TERM_", b"job killed", b"Cgroup mem", b"SIGTERM", b"death signal",
        b"RESOURCE_EXHAUSTED", b"ERROR]", b"Killed", b"Aborted", b"Caught signal",
        b"Memory access fault", b"HSA_STATUS", b"received signal", b"double free", b"free(): ", b"malloc(): ", b"corrupted size", b"exitcode: ",
        b"raining finished", b"raining is", b"raining complete", b"raining done", b"raining Over", b"exiting program", b"run_stop",
        b"steps_per_second", b"Trainer.fit", b"done training", b"exits successfully", b"raining time",
        b"with exit code", b"Job failed: ", b"TaskTimeout",
    ),
    parser=_Parser,
)  # fmt: skip
"""A dialect without records; its marks are `Log.ends`."""
