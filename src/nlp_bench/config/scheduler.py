"""The interface to a scheduler, and which schedulers there are.

A scheduler is one module with one subclass of `Scheduler`: a file NAME.py of launch/scheduler, or named by an entry point of the group
`nlp_bench.schedulers` of any installed package. The class itself, with nothing overridden, is a machine without a scheduler.
"""

import copy
import datetime as dt
import importlib
import os
import re
import time
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from nlp_bench.config.run import Run
    from nlp_bench.config.system import Slurm

LOCAL = "local"  # the launcher that has no queue: this machine
DIRECTIVE_LETTERS = r"\w.,:;=+@%/\[\]*()&|-"  # what a word in a #SBATCH line may have, as a regular expression
PACKAGE = "nlp_bench.launch.scheduler"
"""The built-in schedulers: NAME.py has its class as SCHEDULER, and is loaded when it is needed. A name with "_" is a part of one."""
_FILES = Path(__file__).parents[1] / "launch/scheduler"
BUILT_IN = (*sorted({path.stem for path in _FILES.glob("[!_]*.py") if "_" not in path.stem} - {LOCAL}), LOCAL)
"""Their names; the last of them is this machine."""
GROUP = "nlp_bench.schedulers"  # the entry points of other packages: toy = my_package.toy:Toy
ASK_TIMEOUT_S = 20
PATIENCE_S = 120  # seconds for which a query of a scheduler that does not answer is repeated before a command gives up

NEVER = re.compile(r"(?!)")  # a pattern that matches nothing
Found = TypeVar("Found")


class NoAnswerError(UsageError):
    """A program is installed, but it did not answer in time."""


class SilentError(NlpBenchError):
    """The scheduler did not answer; nothing is known."""


class UnsureError(NlpBenchError):
    """It is not known whether the scheduler took a job."""


class State(Enum):
    """The state of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"  # it is being ended; its script may still run
    ENDED = "ended"  # the job's `outcome` has how; without one its exit status
    GONE = "gone"  # the scheduler answers, but no longer knows the job
    UNKNOWN = "unknown"  # a state of the scheduler that its module does not know


ACTIVE = (State.WAITING, State.RUNNING, State.ENDING)


@immutable
class Job:
    """The scheduler's record of one job."""

    state: State  # its state
    word: str = ""  # the scheduler's own name for that
    reason: str = ""  # why it waits or ended, as the scheduler names it
    outcome: Outcome | None = None  # how it ended, where the state shows it
    reason_outcome: Outcome | None = None  # how it is ending, where the reason shows it
    exit_status: int | None = None
    """Exit status of the job script; None while it runs, and where the scheduler replaces it by numbers of its own."""
    exit_code: str = ""  # the scheduler's spelling of it
    is_killed: bool = False  # whether a signal has ended the job script itself
    fault: tuple[Outcome, Reason] | None = None  # what the exit code means where no program of ours can have left it
    is_memory_suspect: bool = False  # whether a kill without a message is mostly for lack of memory
    job_id: str = ""  # its number
    source: str = ""  # the command that reported it
    restarts: int = 0  # how often it was requeued and restarted
    suspended_s: float | None = None  # seconds that it was suspended; None where the scheduler does not report it
    comment: str = ""  # its comment; empty where it is no longer known
    work_dir: str = ""  # the folder that it was submitted from; likewise
    log: str = ""  # the file that its script's stdout goes to; likewise
    submitted: dt.datetime | None = None  # when it was submitted, local time without offset; None where it is not known
    delay_s: float = 0.0  # how long after its submission it may begin (sbatch --begin)
    node_name: str = ""  # the node on which its script runs; likewise
    is_unstarted: bool = False  # whether it ended without having run for a second, or an exit code
    remedy: str = ""  # what only the user can do for it to go on, with the command
    limit_s: float | None = None  # its time limit; None where it is not known

    def lost_folder(self) -> str:
        """Return what to add where the folder that it was submitted from has another name now, or is gone."""
        if not self.work_dir or os.path.exists(self.work_dir):  # noqa: PTH110  # Path's own raises for a closed one
            return ""
        return f"; it was submitted from {one_line(self.work_dir)}, which is not there, and starts nowhere else"

    def other_log(self) -> str:
        """Return the file that it writes its log to in the place of job.out in its folder; empty where it is that one, or not known."""
        return "" if self.log in {"", f"{self.work_dir}/job.out"} else self.log

    def record(self) -> dict[str, Any]:
        """Return it for outcome.json."""
        names = ("source", "job_id", "state", "reason", "exit_code", "restarts", "suspended_s")
        return {name: getattr(self, name) for name in names} | {"state": self.word or self.state.name}


class Listed(NamedTuple):
    """A job in the scheduler's list."""

    job_id: str  # its number
    comment: str  # its comment as it is there; a site may have changed it
    work_dir: str = ""  # the folder that it was submitted from; empty where it is not known


@immutable
class Allocation:
    """The job that this process is part of, by its environment."""

    job_id: str  # its number
    restarts: int = 0  # how often it was restarted before
    node_name: str = ""  # the scheduler's name of this node; empty where it is not known
    node: int = 0  # number of this node in the job
    num_nodes: str = ""  # nodes of the job
    num_groups: int = 1  # parts of a heterogeneous job, each with nodes of its own


class Scheduler:
    """A scheduler; this base class is a machine without one."""

    name = LOCAL  # as in `launcher` of system files and as a tag
    title = "this machine"  # its name in messages
    absent = ""  # what to do where it does not answer
    job_id = re.compile(r"[0-9]+")  # of its job numbers, in its commands and behind "Submitted batch job"
    path_patterns = ""  # characters that it takes for a pattern in the path of a log
    job_variables = NEVER  # variables that it sets in a job, or that change a submission
    question_variables = NEVER  # variables that change the answers of its other commands
    connection: tuple[str, ...] = ()  # variables that select the scheduler and the user: they are always kept
    selects: tuple[str, ...] = ()
    """Those of `connection` that say which cluster is asked: a run's record keeps them, and its job is asked for with them."""
    clusters: tuple[str, ...] = ()  # those of `selects` that hold names of clusters alone
    submitted_with: Mapping[str, str] | None = None
    """The values of `selects` at the submission of the run that is asked about; None: those of the environment."""
    routed: Mapping[str, str] = {}
    """The values of `clusters` with which the job of the last `submit` is found, where its answer names them: a site's router chose."""
    gpu_variables: tuple[str, ...] = ()  # variables with the GPUs of a task
    gpu_remedy = ""  # how a job gets all GPUs of its nodes
    no_nodes = "no list of nodes"  # why the nodes of a job are not known outside of one
    starter_name = "the job script"  # the program that `starter` calls
    directive = ""  # beginning of the template's lines with its options; lines of other schedulers are left out
    job_id_variable, restarts_variable = "NLP_BENCH_JOB_ID", "NLP_BENCH_RESTARTS"  # variables of the job script
    in_own_allocation: Mapping[str, str] = {}  # with which a script may start ranks inside a user's allocation
    step_variables = NEVER
    """Variables of the user's shell in that allocation from which the starter would take what binds another step, or hides the log."""
    task_ended = ends_step = NEVER
    """The starter's line on a task that failed, its `node` and `status`; its words before it ends all tasks: without them they were cancelled from outside."""
    memory_limit = NEVER  # its message in the log when it killed a job for its memory
    prolog_failure = NEVER  # its message where a node could not be prepared for the job, whose script then never ran
    memory_kill = NEVER  # its message in the log where Linux killed a process of the job for lack of host memory
    silence = ""
    """Why the last `query` has no answer, where another command than the first one has none; the scheduler itself does answer then."""
    said = ""  # what the command of the last `cancel` printed
    queues_command = lost_nodes_command = ""  # commands that show the queues, and why nodes are down

    def selection(self) -> dict[str, str]:
        """Return the variables of the environment that say which cluster is asked."""
        return {name: os.environ[name] for name in self.selects if os.environ.get(name)}

    def as_submitted(self, selection: Mapping[str, str] | None) -> "Scheduler":
        """Return the scheduler that is asked as a run was submitted; itself where that is how it is asked here, or it is not known."""
        if selection is None or selection == self.selection():
            return self
        other = copy.copy(self)
        other.submitted_with = dict(selection)
        return other

    def elsewhere(self) -> str:
        """Say which variables have led to another configuration at the submission than here; nothing where none has.

        A record of a folder names no configuration to be loaded: that of somebody else's would run as this user. They are compared only.
        """
        if self.submitted_with is None:
            return ""
        then, here = self.submitted_with, self.selection()
        other = [name for name in self.selects if name not in self.clusters and then.get(name) != here.get(name)]
        if not other:
            return ""
        shown = ", ".join(f"{name}={one_line(then[name])}" if then.get(name) else f"without {name}" for name in other)
        return f"the run was submitted {'with ' if then.get(other[0]) else ''}{shown}: set that, and ask again"

    def led_by(self) -> str:
        """Say which variables of the environment lead the question to a scheduler; nothing where none is set."""
        found = [name for name in self.connection if os.environ.get(name)]
        shown = [name if "JWT" in name else f"{name}={os.environ[name][:80]}" for name in found]
        return f"; asked by {' '.join(shown)}: unset or correct what is wrong there" if found else ""

    def detect(self) -> str | None:
        """Return the name of the cluster that answers here, None where there is none. Raises NoAnswerError for one that is silent."""
        return None

    def check_options(self, settings: "Slurm") -> None:
        """Raise UsageError for further options of a job that would change what submission, log or outcome depend on."""

    def check_limits(self, run: "Run") -> None:
        """Raise UsageError where its queue cannot grant what `run` requests; nothing where that is not known."""

    def tokens(self, run: "Run") -> dict[str, list[str]]:
        """Return the template's tokens of `directive` lines: each with its values, none where the line is to be removed."""
        return {}

    def header(self, run: "Run") -> list[str]:
        """Return lines to follow the script's first one, of a scheduler for which the template has none."""
        return []

    def starter(self, run: "Run") -> list[str]:
        """Return the command that starts another one once on each node of the job; empty where that simply runs here."""
        return []

    def one_by_one(self, run: "Run") -> "Run":
        """Return `run` changed so that its jobs, all of its job's name, start one after the other."""
        raise UsageError(f"--chain: {self.title} has no way to start jobs one after the other; submit one job")

    def allocation(self) -> Allocation | None:
        """Return the job that this process is part of."""
        return None

    def addresses(self, suffix: str) -> list[str]:
        """Return an address of each node of this job, in its order; `suffix` makes a node's name its fast address. Raises NlpBenchError."""
        return ["127.0.0.1"]

    def submit(self, script: Path, *, account: str, comment: str, lock: int, after: str = "") -> str:
        """Submit `script`, from its folder, and return the job's number. `lock` is a descriptor to be inherited by what is started.

        `after`, given for the further jobs of a chain only, is the job whose end, good or bad, the new one waits for.
        The job must be found by its `comment` afterwards. Raises UnsureError where it is not known whether there is a job now,
        another NlpBenchError where there is none.
        """
        raise NotImplementedError

    def kept_variables(self, account: str) -> tuple[str, ...]:
        """Return those of `job_variables` that a submission under this account gets all the same."""
        return ()

    def query(self, job_id: str, *, timeout_s: float = ASK_TIMEOUT_S) -> Job | None:
        """Return its record of a job; None where it does not answer at present."""
        return None

    def hides_jobs_of(self, owner: int) -> bool:
        """Whether it shows this user no jobs of the user `owner`: that it does not know one says nothing then."""
        return False

    def is_queued(self, job_id: str) -> bool | None:
        """Whether its queue lists the job as waiting or running, used where `query` gave a State.UNKNOWN; None: no answer."""
        return None

    def jobs(self, *, ended: bool) -> list[Listed]:
        """Return this user's jobs, the oldest first, with `ended` also ended ones as far as known. Raises SilentError for no answer: that is not "none" either."""
        return []

    def beside(self, job_id: str) -> list[str]:
        """Return the numbers of the other jobs that ran on the nodes of a job while it did, as far as they are known and shown to this user."""
        return []

    def cancel(self, job_ids: list[str], *, waiting_only: bool = False) -> str | None:
        """Take jobs out of the queue; return why not where it did not, which is no error: they would end by themselves."""
        return None

    def commands(self, job_ids: list[str]) -> tuple[str, str]:
        """Return the commands to show the last of `job_ids`, and to end them all."""
        raise NotImplementedError

    def why_not_started(self, errors: str) -> Reason | None:
        """Return why the starter started nothing, from the job's stderr; None where that does not say."""
        return None

    def says_requeued(self, notice: str, error: str) -> bool:
        """Whether its notice or the first error in the log says that the job was requeued."""
        return False


def patiently(scheduler: Scheduler, query: Callable[[], Found]) -> Found:
    """Repeat a query until the scheduler answers, with growing pauses, for PATIENCE_S; then raise its SilentError."""
    end, pause_s = time.monotonic() + PATIENCE_S, 1.0
    while True:
        try:
            return query()
        except SilentError as error:  # noqa: PERF203  # each query may be the last
            if time.monotonic() + pause_s > end:
                raise
            say(f"{scheduler.title} does not answer ({error}); asking again in {pause_s:.0f} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 30.0)


@cache
def get_scheduler(name: str) -> Scheduler:
    """Return the scheduler of that name. Raises UsageError where there is none."""
    check_name("launch.launcher", name)
    if name == LOCAL:
        return Scheduler()
    named = importlib.import_module(f"{PACKAGE}.{name}").SCHEDULER if name in BUILT_IN else _plugins()[name].load()
    found: Scheduler = named()
    return found


def scheduler_names() -> tuple[str, ...]:
    """Return the names of all schedulers that are installed, the built-in ones first."""
    return (*BUILT_IN, *_plugins())


def check_name(field: str, name: str) -> None:
    """Raise UsageError for a scheduler that is not installed."""
    # entry points are looked for only where they are needed: that reads every installed package
    if name not in BUILT_IN and name not in scheduler_names():
        raise UsageError(f"{field}: {name!r} is not one of {', '.join(scheduler_names())}")


@cache
def _plugins() -> "dict[str, EntryPoint]":
    from importlib.metadata import entry_points  # noqa: PLC0415  # see check_name

    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}
