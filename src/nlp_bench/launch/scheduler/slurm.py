"""Slurm: its job states, commands and options, the variables of a job, its messages in a log."""

import contextlib
import datetime as dt
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nlp_bench import programs, safe_path
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import (
    ACTIVE,
    ASK_TIMEOUT_S,
    DIRECTIVE_LETTERS,
    Allocation,
    Job,
    Listed,
    NoAnswerError,
    Scheduler,
    SilentError,
    State,
    UnsureError,
    patiently,
)
from nlp_bench.config.system import Slurm as Settings
from nlp_bench.config.values import seconds_of
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line
from nlp_bench.files import real
from nlp_bench.launch import ambient
from nlp_bench.launch.scheduler import slurm_answers as answers
from nlp_bench.launch.scheduler.slurm_options import OF_CHAIN, OF_NOTICE, SBATCH, SRUN, check_signal, check_words
from nlp_bench.outcome import Outcome
from nlp_bench.programs import Answer
from nlp_bench.reason import Reason
from nlp_bench.terminal import say

SUBMIT_TIMEOUT_S = 180
"""Seconds for sbatch, which itself tries for 120 (1 + 2 + ... + 15, sbatch.c) where the controller takes no more jobs for now (MaxJobCount)."""
KILLED_S = 5.0  # seconds in which an sbatch that was killed ends
ANSWER_S = 10.0  # seconds for an answer that a person waits for; a healthy controller takes a few hundredths
REASONS = {
    "TimeLimit": Outcome.TIMEOUT, "Deadline": Outcome.TIMEOUT,
    "NodeDown": Outcome.NODE_FAIL, "OutOfMemory": Outcome.OUT_OF_MEMORY,
}  # fmt: skip
"""Reasons that name the end of a job whose state is still COMPLETING. Source: JOB REASON CODES of squeue's manual."""
_MEANINGS: dict[State | Outcome, str] = {
    State.WAITING: "PENDING CONFIGURING EXPEDITING POWER_UP_NODE REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT",
    State.RUNNING: "RUNNING RESIZING SIGNALING STOPPED SUSPENDED UPDATE_DB REVOKED",
    State.ENDING: "STAGE_OUT COMPLETING",
    State.ENDED: "COMPLETED",
    Outcome.FAILED: "FAILED",
    Outcome.TIMEOUT: "TIMEOUT DEADLINE",
    Outcome.CANCELLED: "CANCELLED",
    Outcome.PREEMPTED: "PREEMPTED",
    Outcome.NODE_FAIL: "NODE_FAIL BOOT_FAIL LAUNCH_FAILED RECONFIG_FAIL",
    Outcome.OUT_OF_MEMORY: "OUT_OF_MEMORY",
}
STATES = {word: meaning for meaning, words in _MEANINGS.items() for word in words.split()}
"""What each state means. Source: JOB STATE CODES of squeue's manual, Slurm 22.05 to 25.05 (the newer words are EXPEDITING,
LAUNCH_FAILED, POWER_UP_NODE, RECONFIG_FAIL and UPDATE_DB). REVOKED: another cluster of the federation has started the job."""
HELD = ("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")  # states that only a person ends, by `scontrol release`
LAUNCH_FAILURE, OUTPUT_SIGNAL, MEMORY_SIGNAL = "JobLaunchFailure", "53", "125"
"""Slurm's own reason, and numbers in the place of a signal: job.out cannot be opened; memory exhausted (sacct's manual: 0:125)."""
_NO_OUTPUT = "Slurm could not start the job script: job.out cannot be opened (0:53); is the run folder there, and writable, on the nodes?"
FAULTS = {
    OUTPUT_SIGNAL: (Outcome.FAILED, Reason("no-output", _NO_OUTPUT)),
    MEMORY_SIGNAL: (Outcome.OUT_OF_MEMORY, Reason("host-memory", "Slurm: out of memory (0:125)")),
}
PATHS = re.compile(r" (WorkDir|StdOut)=(.*?)(?= [A-Z]\w*=| *$)", re.MULTILINE)
"""Folder and log of a job in `scontrol --oneliner show job`; their names may hold blanks."""
UNSURE = re.compile(
    r"unable to contact|timed out|connection|socket|zero bytes|communication|unexpected message", re.IGNORECASE
)
"""What sbatch says where the controller may have taken the job all the same, for example "Socket timed out on send/recv operation"."""
LAST_WORD = re.compile(
    r"^sbatch: error: (?:Batch job submission failed: (?P<why>.+)|cli_filter plugin terminated with error)$",
    re.MULTILINE,
)
"""The line in which sbatch itself says why, the second before it asks the controller; above it a plugin of the site may say anything ("no connection to ..., please contact ...")."""
LOST, OWN_WORDS = 255, re.compile(r"^sbatch: ", re.MULTILINE)
"""The exit status of an ssh whose connection was lost, in a wrapper; sbatch itself has it for an option that is wrong, and says so."""
PARSABLE = re.compile(r"\s*(\d+)(?:;(\S+))?\s*")
"""All that sbatch prints with `--parsable`, the cluster where one was chosen; a number among other lines may be anything, a project's balance for example."""
IN_WORDS = re.compile(r"^\s*Submitted batch job\s+(\d+)(?: on cluster (\S+))?\s*$", re.MULTILINE)
"""The job's number, and its cluster, as a wrapper of the site prints it that does not know the option."""
DEPENDENCY, OWN_OPTION = "--dependency=", re.compile(r"^#SBATCH (--[\w.,:=+@%/-]+)$", re.MULTILINE)
"""An option in the job script that any wrapper of sbatch, through ssh too, hands on as it stands."""
CONFIG = ("scontrol", "show", "config")  # the question whether there is a Slurm, and which
PRIVATE_JOBS = re.compile(r"^PrivateData\s*=.*\bjobs\b", re.MULTILINE)
"""In its answer: whoever is no operator is shown no job of others, as if there were none."""
SHOW = ("scontrol", "--oneliner", "show")
"""Options stand before the words: behind them they are words themselves where POSIXLY_CORRECT is set. Source: getopt_long(3)."""
PARTITIONS = ("scontrol", "--oneliner", "--all", "show", "partition")
"""The question for all partitions, hidden ones among them: jobs may be submitted to them."""
NO_CONTROLLER = re.compile(r"Unable to contact slurm controller|slurm_load_\w+ error: (?!Invalid)")
"""What the commands say where there is a Slurm whose controller does not answer. Source: scontrol of Slurm 22.05."""
MUNGE = re.compile(r"[Mm]unge|Protocol authentication error|credential")
"""What they say where munge, by which Slurm knows its users, lets nobody in. Source: slurm_errno.c, munge_err.c."""
NOT_STARTED = re.compile(
    r"srun: error: (?:.*Unable to contact slurm controller"
    r"|Unable to (?:confirm allocation|create step) for job \d+: (?:Socket timed out|Zero Bytes were transmitted|Communication |Message (?:send|receive) failure))"
)
"""srun's words where the controller is away when the step is to begin, for longer than srun asks (10 s), or hangs over the answer."""
NO_STEP = re.compile(
    r"srun: error: (?:Unable to (?:confirm allocation|create step) for job \d+: |(?=(?i:slurm) job \d+ has expired))(?P<why>.+)"
)
"""srun's words where Slurm gives it no step. Source: allocate.c of srun, Slurm 22.05."""
FORGOTTEN, PENDING = "Invalid job id specified", "Job is pending execution"
"""Why: a killed controller has not saved the job before its death, or not that it runs (it will begin anew; or its
number is by now another job's, which waits)."""
WITHOUT_NUMBER = re.compile(r"(?:^[^:,]+|(?<=,)gpu)(?::(?!\d+(?:,|$))[^:,]+)?(?=,|$)")
"""The first generic resource or GPUs, or a type of it (gpu:a100), of which Slurm would give one."""
GPUS = re.compile(r"(?:^|,)gpu(?::[^:,]+)?:(\d+)(?=,|\(|$)")  # how many GPUs of a node a generic resource asks for
GPU_NAMES = re.compile(r"(?:^|[,:/])(?:gpu|mps|shard)(?=[:,]|$)")
"""Generic resources that are GPUs, or parts of them. Source: gres.conf's manual."""
ASKS_FOR_GPUS = ("--gpus", "-G", "--gres", "--tres-per")  # how words of sbatch and srun ask for them, too
DIRECTIVE_WORD = re.compile(f"[{DIRECTIVE_LETTERS}]+")


class Slurm(Scheduler):
    """Slurm by its commands; "cannot be asked" and "not there" are kept apart."""

    name = "slurm"
    title = "Slurm"
    absent = "(sbatch and scontrol were asked); load the site's Slurm, set SLURM_CONF"
    # A job, one of an array (12_3), or a part of a heterogeneous one (12+1).
    job_id = re.compile(r"[0-9]+([_+][0-9]+)?")
    path_patterns = "%\\"
    job_variables = re.compile(r"SBATCH_\w+|SLURMD?_\w+")
    question_variables = re.compile(r"(SQUEUE|SCANCEL|SACCT|SINFO|SCONTROL)_\w+|SLURM_TIME_FORMAT")
    connection = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_SOCKET")
    selects = ("SLURM_CLUSTERS", "SLURM_CONF", "SLURM_CONF_SERVER")
    clusters = ("SLURM_CLUSTERS",)
    gpu_variables = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND")
    gpu_remedy = (
        "the one task per node needs all GPUs of its ranks: ask for them (system.slurm.gres or gpus_per_node_option) "
        "and take --gpus-per-task and --gpu-bind out of sbatch_args and srun_args"
    )
    no_nodes = "no SLURM_JOB_NODELIST"
    starter_name = "srun"
    directive = "#SBATCH "
    job_id_variable, restarts_variable = "SLURM_JOB_ID", "SLURM_RESTART_COUNT"
    # The step of a person's own shell must not block ours.
    in_own_allocation: Mapping[str, str] = {"SLURM_OVERLAP": "1"}
    # srun's options in its manual's INPUT ENVIRONMENT VARIABLES; the binds are of the shell's own step.
    step_variables = re.compile(
        r"SLURM_(?:(?:CPU|MEM)_BIND\w*|LABELIO|STD(?:IN|OUT|ERR)MODE|KILL_BAD_EXIT|MULTI_PROG|REMOTE_CWD|WORKING_DIR)"
    )
    # It then ends the tasks of all other nodes by a signal (--kill-on-bad-exit).
    task_ended = re.compile(
        r"srun: error: (?P<node>\S+): tasks? \S+: (?:Exited with exit code (?P<status>\d+)|(?!Exited).+)"
    )
    ends_step = re.compile(
        r"srun: (?:error: (?:\S+: tasks? |Task launch |Application launch |Node failure|Unable to )|First task exited)"
    )
    # OverMemoryKill, whose job ends as FAILED or CANCELLED. Source: slurmstepd of Slurm 22.05.
    memory_limit = re.compile(
        r"slurmstepd\S*: error: (?:StepId=|Step |JobId=|Job )\S+ exceeded memory limit \(\d+ > \d+\), being killed"
    )
    # Of the job (slurmd's req.c), whose state is CANCELLED then, and of a task (slurmstepd's task.c).
    prolog_failure = re.compile(
        r"^.*Error running slurm prolog: \d+|^slurmstepd\S*: error: TaskProlog failed status=\d+"
    )
    memory_kill = re.compile(r"^.*[Dd]etected \d+ oom[-_]kill event.*")  # slurmstepd's task/cgroup
    queues_command, lost_nodes_command = "sinfo", "sinfo --list-reasons"

    def detect(self) -> str | None:
        """Return the ClusterName of the Slurm that answers here, or None. Raises NoAnswerError for one that is silent."""
        named = os.environ.get("SLURM_CONF")
        if named and not Path(named).exists():  # scontrol would search the network for one
            return None
        answer = ask(*CONFIG, timeout_s=ANSWER_S)
        name = cluster_name(answer.out) if answer.is_good else None
        has_slurm = _has_sbatch()
        if has_slurm and answer.is_missing:
            raise NoAnswerError(
                "sbatch is here (PATH), but scontrol is not, or may not be executed: load or bind it, or say --system local"
            )
        if name is None and not is_absent(answer) and (has_slurm or _is_silent(answer)):
            way = way_on(answer)
            raise NoAnswerError(
                f"`{' '.join(CONFIG)}`: {answer.text or 'no answer'}; {way or 'try again later'}, or train on this machine, which needs no "
                f"Slurm: --system local (tag local){'' if way else self.led_by()}"
            )
        return name if has_slurm else None

    def check_options(self, settings: Settings) -> None:
        """Refuse options of sbatch and srun that submission, log or outcome rest on."""
        check_words("system.slurm.sbatch_args", settings.sbatch_args, SBATCH)
        check_signal("system.slurm.sbatch_args", settings.sbatch_args)
        check_words("system.slurm.srun_args", settings.srun_args, SRUN)

    def check_limits(self, run: Run) -> None:
        """Refuse a partition that does not exist, more nodes than it has, and a longer time than it gives."""
        found = answers.records(listing(*PARTITIONS) or "", "PartitionName")
        if not found or "," in run.launch.queue:
            return  # of a list of partitions Slurm takes the first that fits
        queue = run.launch.queue or next((name for name, line in found.items() if "Default=YES" in line), "")
        if queue not in found:
            raise UsageError(f"launch.queue: Slurm has no partition {queue!r} (it has: {', '.join(sorted(found))})")
        limits = [answers.field_of(found[queue], "TotalNodes"), answers.field_of(found[queue], "MaxNodes")]
        most = min((int(limit) for limit in limits if limit.isdigit()), default=None)
        if most is not None and run.parallel.nodes > most and run.system.slurm.oversize == "refuse":
            raise UsageError(
                f"parallel.nodes: {run.parallel.nodes} nodes, but partition {queue} has at most {most}; "
                "choose fewer --nodes or another --queue"
            )
        most_time = answers.field_of(found[queue], "MaxTime")
        longest = seconds_of(most_time)
        if longest is not None and run.launch.limit_s > longest:
            raise UsageError(
                f"launch.timelimit: {run.launch.timelimit}, but partition {queue} gives at most {most_time}"
            )

    def tokens(self, run: Run) -> dict[str, list[str]]:
        """Return the tokens of the #SBATCH lines. Raises UsageError for a value that cannot stand in one."""
        settings, per_node = run.system.slurm, run.parallel.gpus_per_node
        asked = sum(map(int, GPUS.findall(settings.gres)))
        if 0 < asked < per_node and run.system.accelerator == "cuda":
            raise UsageError(
                f"system.slurm.gres: {settings.gres!r} asks for {asked} GPUs of each node, where {per_node} ranks start "
                f"(parallel.gpus_per_node); write gpu:{per_node}, or gpu alone, which takes as many as there are ranks"
            )
        if settings.gres and not GPU_NAMES.search(settings.gres) and run.system.accelerator == "cuda":
            _check_without_gpus(settings, per_node)
        if run.limits.notice_s:
            check_words("system.slurm.sbatch_args", settings.sbatch_args, OF_NOTICE)
        values = {
            "JOB_NAME": run.launch.job_name,
            "QUEUE": run.launch.queue,
            "ACCOUNT": run.launch.account,
            "NODES": run.parallel.nodes,
            "TASKS_PER_NODE": 1,
            "CPUS_PER_TASK": settings.cpus_per_task,
            "GRES": WITHOUT_NUMBER.sub(rf"\g<0>:{per_node}", settings.gres),
            "GPUS_PER_NODE": per_node if settings.gpus_per_node_option else None,
            "MEM": settings.mem,
            "HINT": settings.hint,
            "TIMELIMIT": run.launch.timelimit,
            "DEPENDENCY": settings.dependency,
            "NOTICE": f"B:USR1@{run.limits.notice_s}" if run.limits.notice_s else None,
        }
        tokens = {name: [] if value in {None, ""} else [_word(name, str(value))] for name, value in values.items()}
        tokens["EXCLUSIVE"] = ["--exclusive"] if settings.exclusive else []
        tokens["FURTHER_OPTIONS"] = [_word("sbatch_args", word) for word in settings.sbatch_args]
        return tokens

    def starter(self, run: Run) -> list[str]:
        """Return srun with one task per node, whose environment is the script's in a job without its submitter's (sbatch --export=NONE), too.

        Its tasks import nothing of their current folder, the run's; srun itself may be a Python script of the site (see safe_path.py).
        """
        settings, nodes = run.system.slurm, run.parallel.nodes
        cpus = [f"--cpus-per-task={settings.cpus_per_task}"] if settings.cpus_per_task else []
        sizes = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
        srun = ["env", "-u", safe_path.NAME, "srun", f"--export=ALL,{safe_path.NAME}={safe_path.OURS}"]
        return [*srun, "--kill-on-bad-exit=1", *sizes, *cpus, *settings.srun_args]

    def one_by_one(self, run: Run) -> Run:
        """Return `run` with --dependency=singleton: of one name and user, one job at a time. Raises UsageError where each may get less time.

        A plugin of the site may make names unique: so each waits for the one before by its number, too (`submit`).
        """
        check_words("system.slurm.sbatch_args", run.system.slurm.sbatch_args, OF_CHAIN)
        dependency = ",".join(dict.fromkeys(filter(None, (run.system.slurm.dependency, "singleton"))))
        return replace(run, system=replace(run.system, slurm=replace(run.system.slurm, dependency=dependency)))

    def allocation(self) -> Allocation | None:
        """Return the job whose variables are set here; a terminal that was opened inside a job keeps them after its end."""
        job_id = os.environ.get("SLURM_JOB_ID")
        if not job_id:
            return None
        restarts, groups = os.environ.get("SLURM_RESTART_COUNT", ""), os.environ.get("SLURM_HET_SIZE", "")
        return Allocation(
            job_id=job_id,
            restarts=int(restarts) if restarts.isdigit() else 0,
            node_name=os.environ.get("SLURMD_NODENAME", ""),
            node=int(os.environ.get("SLURM_NODEID", "0")),
            num_nodes=os.environ.get("SLURM_JOB_NUM_NODES", ""),
            num_groups=int(groups) if groups.isdigit() else 1,
        )

    def addresses(self, suffix: str) -> list[str]:
        """Return each node's NodeAddr, or its name with `suffix`, in Slurm's order."""
        nodes = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST") or ""
        if nodes and shutil.which("scontrol") is None:
            raise NlpBenchError(
                f"scontrol is not on PATH in the job, so that its nodes ({nodes}) are not known: name Slurm's module in software.modules of "
                "the system file, which are loaded after `module purge`"
            )
        names = answers.hostnames(listing(*answers.hostnames_command(nodes), timeout_s=30) or "") if nodes else []
        if names is None:
            raise NlpBenchError(
                f"scontrol does not write out the nodes {nodes}; look at `scontrol show hostnames {nodes}`"
            )
        if suffix or not names:
            return [name + suffix for name in names]
        shown = answers.records(patiently(self, lambda: _shown_nodes(names)) or "", "NodeName")
        return [answers.field_of(shown.get(name, ""), "NodeAddr") or name for name in names]

    def submit(self, script: Path, *, account: str, comment: str, lock: int, after: str = "") -> str:
        """Call sbatch, which gets no SBATCH_* and SLURM_*: they would silently override the script's lines and its srun's options."""
        self.routed = {}
        script = real(script)  # its whole path: a wrapper that goes through ssh loses the folder
        options = ["--parsable", f"--comment={comment}", f"--chdir={script.parent}", *_own_options(script, after)]
        words = ["sbatch", *options, str(script)]
        done = _sbatch(words, script.parent, without_overrides(account, self._environment()), lock)
        said, shown = (done.stderr or done.stdout).strip(), answers.plain(done.stdout)
        is_killed = done.returncode < 0 or 128 < done.returncode < LOST
        is_cut_off = is_killed or (done.returncode == LOST and not OWN_WORDS.search(said))
        why = LAST_WORD.findall(said)
        failed_after = not why and re.search(r"\d", shown)  # a number: a hook of the site failed after sbatch
        is_unsure = UNSURE.search(" ".join(why) if why else said) or failed_after
        if done.returncode and not is_unsure and not is_cut_off:
            beside = f"; {one_line(shown)}" if done.stderr.strip() and shown.strip() else ""
            raise NlpBenchError(f"sbatch refused {script}: {said or 'nothing'}{beside}")
        found = IN_WORDS.findall(shown) or PARSABLE.findall(shown if PARSABLE.fullmatch(shown) else "")
        numbers = dict(sorted(found))
        if done.returncode or len(numbers) != 1:
            status = f" (exit status {done.returncode})" if done.returncode else ""
            raise UnsureError(f"sbatch said{status}: {said or 'nothing'}")
        if done.stderr.strip():  # a plugin of the site: another partition, a budget that ends
            say(f"sbatch took the job, and said: {one_line(done.stderr)}")
        ((number, cluster),) = numbers.items()
        self.routed = {name: cluster for name in self.clusters if cluster}
        return str(number)

    def kept_variables(self, account: str) -> tuple[str, ...]:
        """Return SBATCH_ACCOUNT where the run names no account."""
        return () if account else ("SBATCH_ACCOUNT",)

    def _environment(self) -> dict[str, str]:
        """Return the variables for a command, with the clusters of the submission."""
        if self.submitted_with is None:
            return dict(os.environ)
        return {name: value for name, value in os.environ.items() if name not in self.clusters} | self._led()

    def _led(self) -> dict[str, str]:
        """Return the clusters that the submission asked for."""
        return {name: value for name, value in (self.submitted_with or {}).items() if name in self.clusters}

    def _ask(self, *command: str, timeout_s: float = ASK_TIMEOUT_S) -> Answer:
        return ask(*command, timeout_s=timeout_s, environment=self._environment())

    def query(self, job_id: str, *, timeout_s: float = ASK_TIMEOUT_S) -> Job | None:
        """Ask scontrol, then the accounting, then the log of completed jobs (`sacct -c`)."""
        self.silence = ""
        answer = self._ask(*SHOW, "job", job_id, timeout_s=timeout_s)
        shown = next((line for line in answers.records(answer.out, "JobId").values() if " JobState=" in line), None)
        if answer.is_good and shown:
            return shown_job(shown, job_id, self._before())
        if "Invalid job id" not in answer.err:
            if answer.is_missing:
                self.silence = f"{answer.err}: load the site's module of Slurm"
            elif self._led():  # Slurm here may know no other cluster: it finds them in its accounting
                asked = " ".join(f"{name}={value}" for name, value in self._led().items())
                self.silence = f"{asked} scontrol: {one_line(answer.text) or 'nothing'}"
            return None
        for source in ("sacct", "sacct -c"):
            answer = self._ask(*source.split(), "-X", "-P", "-j", job_id, "-o", answers.ACCOUNTED)
            found = answers.accounted(answer.out, job_id) if answer.is_good else None
            # REVOKED: how it ended is in the records of another cluster, and in its own.
            if found and found["word"] != "REVOKED":
                found["submitted"] = _time(found["submitted"])
                known = job(**found, job_id=job_id, source=source)
                if known.state not in ACTIVE:
                    return known
                gone = replace(known, state=State.GONE, reason=f"its accounting still says {known.word}: a runaway job")
                return None if self.elsewhere() else gone
            is_off = not answer.is_good and (source == "sacct -c" or "accounting storage is disabled" in answer.err)
            if not is_off and not (answer.is_good and answers.is_accounting(answer.out)):
                said = f"`{source}`: {one_line(answer.text) or 'nothing'}"
                self.silence = f"scontrol no longer knows the job, and its accounting does not tell ({said})"
                return None
        return None if self.elsewhere() else Job(state=State.GONE, job_id=job_id, source="scontrol")

    def hides_jobs_of(self, owner: int) -> bool:
        """Ask for PrivateData, which is not for root. Source: slurm.conf's manual."""
        return os.geteuid() not in {0, owner} and bool(PRIVATE_JOBS.search(answers.plain(self._ask(*CONFIG).out)))

    def is_queued(self, job_id: str) -> bool | None:
        """Ask squeue."""
        answer = self._ask("squeue", f"--jobs={job_id}", f"--format={answers.MARK}%i")
        if not answer.is_good:
            return False if "Invalid job id" in answer.err else None
        found = answers.rows(answer.out, 1)
        return None if found is None else [job_id] in found

    def jobs(self, *, ended: bool) -> list[Listed]:
        """Ask squeue."""
        if said := self.elsewhere():
            raise SilentError(said)
        states = ["--states=all"] if ended else []
        answer = self._ask("squeue", f"--user={os.getuid()}", *states, f"--format={answers.LISTED}")
        found = answers.listed(answer.out) if answer.is_good else None
        if found is None:
            said = answers.other_form("squeue") if answer.is_good else "no answer"
            raise SilentError(f"squeue: {answer.err.strip() or said}")
        jobs = [Listed(job_id, comment, work_dir) for job_id, work_dir, comment in found]
        return sorted(jobs, key=lambda job: (int(job.job_id), job.comment))

    def beside(self, job_id: str) -> list[str]:
        """Ask squeue, which lists ended jobs as well, for MinJobAge (300 s by default)."""

        def jobs(those: str) -> list[list[str]]:
            answer = self._ask("squeue", "--states=all", those, f"--format={answers.MARK}%i|%S|%e|%N")
            found = (answers.rows(answer.out, 4) or []) if answer.is_good else []
            return [row for row in found if _time(row[1]) and row[3].strip()]  # one that waits has no nodes

        if not (own := jobs(f"--jobs={job_id}")):
            return []
        _, begin, end, nodes = own[0]
        # Times in ISO 8601 sort as text, and NONE, the end of a running job without a limit, behind them.
        return [
            number
            for number, began, ended, _ in jobs(f"--nodelist={nodes}")
            if began < end and ended > begin and not re.match(rf"{job_id}(?!\d)", number)
        ]

    def cancel(self, job_ids: list[str], *, waiting_only: bool = False) -> str | None:
        """Call scancel."""
        if not job_ids:
            return None
        answer = self._ask("scancel", *(["--state=PENDING"] if waiting_only else []), *job_ids)
        self.said = one_line(answer.text)
        return None if answer.is_good else self.said or f"exit status {answer.code}"

    def commands(self, job_ids: list[str]) -> tuple[str, str]:
        """Return scontrol's and scancel's."""
        return f"{self._before()}scontrol show job {job_ids[-1]}", f"{self._before()}scancel {' '.join(job_ids)}"

    def _before(self) -> str:
        """Return what stands before a command to be typed that is to reach the run's cluster."""
        return "".join(f"{name}={shlex.quote(value)} " for name, value in self._led().items())

    def why_not_started(self, errors: str) -> Reason | None:
        """Return why srun started no rank; "controller" is no fault of the run's."""
        if NOT_STARTED.search(errors):
            return Reason("controller", "Slurm's controller did not answer srun, which started no rank")
        found = NO_STEP.search(errors)
        if found is None:
            return None
        why = found.group("why")
        lost = "the job" if why.startswith(FORGOTTEN) else "that the job was running" if why.startswith(PENDING) else ""
        if lost:
            text = (
                f"Slurm's controller no longer knew {lost} (mostly it was killed, and lost it), so srun started no rank"
            )
            return Reason("controller", text)
        return Reason("no-step", f"srun started no rank: {why}")

    def says_requeued(self, notice: str, error: str) -> bool:
        """Whether slurmstepd's notice or srun's error says so."""
        return "DUE TO JOB REQUEUE" in notice or PENDING in error


SCHEDULER = Slurm


def _own_options(script: Path, after: str) -> list[str]:
    """Return the options of the script's #SBATCH lines, which Slurm ignores where a site's wrapper puts a command before them.

    The job waits for the job `after`, too.
    """
    own = OWN_OPTION.findall(script.read_text(encoding="utf-8", errors="replace"))  # a folder may have any name
    waits = [option.removeprefix(DEPENDENCY) for option in own if option.startswith(DEPENDENCY)]
    return [*own, *([DEPENDENCY + ",".join([*waits, f"afterany:{after}"])] if after else [])]  # the last of two counts


def _sbatch(
    words: list[str], folder: Path, variables: Mapping[str, str], lock: int
) -> "subprocess.CompletedProcess[str]":
    """Call sbatch, or what a site has put in its place, as a session of its own, which is ended as a whole: a wrapper's child would submit later.

    Nobody can answer a question that it asks. Raises UnsureError with its words where it does not end in time, NlpBenchError where it does
    not start.
    """
    try:
        process = subprocess.Popen(
            words, cwd=folder, env=safe_path.without_ours(variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(lock,),
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NlpBenchError(f"sbatch cannot be started: {error.strerror}") from error
    slow = threading.Timer(
        ANSWER_S, say, [f"sbatch has not answered for {ANSWER_S:g} s (Slurm may be full, or slow); waiting"]
    )
    slow.daemon = True
    slow.start()
    with process:
        try:
            out, err = programs.printed(process, SUBMIT_TIMEOUT_S)
        except subprocess.TimeoutExpired as late:
            said = _ended(process)
            raise UnsureError(
                f"sbatch did not answer within {SUBMIT_TIMEOUT_S:g} s and was ended; it had said: {said or 'nothing'}"
            ) from late
        except BaseException:  # this process is to end
            _ended(process)
            raise
        finally:
            slow.cancel()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _ended(process: "subprocess.Popen[bytes]") -> str:
    """End the whole process group of `process` and return what it had said."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in a file system
        out, err = programs.printed(process, KILLED_S)
        return (err or out).strip()
    return ""


def job(word: str, *, reason: str = "", exit_code: str = "", job_id: str = "", before: str = "", **facts: Any) -> Job:
    """Return what Slurm's words for a job mean, also "CANCELLED by 1000", "CANCELLED+" and lower case; `facts` are further fields of the job."""
    parts = word.upper().replace("+", " ").split()
    meaning = STATES.get(parts[0], State.UNKNOWN) if parts else State.UNKNOWN
    outcome = meaning if isinstance(meaning, Outcome) else Outcome.UNKNOWN if meaning is State.UNKNOWN else None
    if exit_code:
        facts["exit_status"] = _status(exit_code)
    known = Job(
        state=State.ENDED if isinstance(meaning, Outcome) else meaning,
        word=word,
        reason=reason,
        outcome=outcome,
        reason_outcome=REASONS.get(reason),
        exit_code=exit_code,
        is_killed=bool(re.fullmatch(r"0:[1-9]\d*", exit_code)),
        fault=FAULTS.get(exit_code.partition(":")[2]),
        is_memory_suspect=reason == LAUNCH_FAILURE,
        job_id=job_id,
        source="scontrol",
        remedy=_remedy(word, reason, job_id, before) if job_id else "",
    )
    return replace(known, **facts)


def _remedy(word: str, reason: str, job_id: str, before: str) -> str:
    """Return what a person can do for a job that will not start here by itself, or should know of it; nothing for any other."""
    if word == "REVOKED":
        return "another cluster of the federation has started it"
    if reason == "JobHeldAdmin":
        return f"held by an operator, who alone can release it; or {before}scancel {job_id}"
    if reason == "DependencyNeverSatisfied":
        return f"it will never start: {before}scancel {job_id}, then submit it without that --dependency"
    is_held = word.upper() in HELD or "held" in reason.lower()
    return f"held: {before}scontrol release {job_id}, or {before}scancel {job_id}" if is_held else ""


def shown_job(line: str, job_id: str, before: str = "") -> Job:
    """Return the job in a line of `scontrol --oneliner show job`; `before` stands before the commands of its remedy."""
    said = partial(answers.field_of, line)
    times = ("SubmitTime", "EligibleTime", "PreemptTime", "StartTime")
    submitted, eligible, given_up, started = (_time(said(name)) for name in times)
    restarts, paths = said("Restarts"), dict(PATHS.findall(line))
    found = job(
        said("JobState"),
        reason=said("Reason"),
        exit_code=said("ExitCode"),
        job_id=job_id,
        before=before,
        restarts=int(restarts) if restarts.isdigit() else 0,
        suspended_s=_suspended(line),
        comment=said("Comment"),
        node_name=said("BatchHost"),
        is_unstarted=(said("ExitCode"), said("RunTime")) == ("0:0", "00:00:00"),
        # Of one answer: Slurm's commands may run in another time zone than this process.
        delay_s=max(0.0, (eligible - submitted).total_seconds()) if submitted and eligible else 0.0,
        work_dir=paths.get("WorkDir", ""),
        log=paths.get("StdOut", ""),
        limit_s=seconds_of(said("TimeLimit")),
    )
    return _preempted(found, given_up) if given_up and started and given_up >= started else found


def _preempted(found: Job, when: dt.datetime) -> Job:
    """Return a job that Slurm told to go at this time: within its partition's GraceTime it ends by itself, in a state that does not say why."""
    said = f"PREEMPTED (PreemptTime={when.isoformat()})"
    if found.state in {State.RUNNING, State.ENDING}:
        return replace(found, reason=said, reason_outcome=Outcome.PREEMPTED)
    if found.outcome in {Outcome.FAILED, Outcome.CANCELLED, Outcome.TIMEOUT}:
        return replace(found, word=f"{said}: {found.word}", outcome=Outcome.PREEMPTED)
    return found


def _suspended(line: str) -> float:
    """Return the seconds between start and end (or now) that are missing from Slurm's run time; it has no field of its own."""
    if answers.field_of(line, "SuspendTime") in {"", "None", "Unknown"}:
        return 0.0
    begin, end = _time(answers.field_of(line, "StartTime")), _time(answers.field_of(line, "EndTime"))
    ran_s = seconds_of(answers.field_of(line, "RunTime"))
    if begin is None or ran_s is None:
        return 1.0  # suspended for a time that cannot be told
    present = dt.datetime.now().astimezone().replace(tzinfo=None)
    ended = present if end is None or end > present else end  # while it runs, EndTime is the time limit's
    return max(1.0, (ended - begin).total_seconds() - ran_s)


def _time(word: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(word)
    except ValueError:
        return None


def _status(exit_code: str) -> int | None:
    """Return one shell-like status from Slurm's "status:signal"; a signal becomes 128 + its number, a number of Slurm's own None."""
    found = re.fullmatch(r"(\d+):(\d+)", exit_code)
    if not found or found.group(2) in FAULTS:
        return None
    return int(found.group(1)) or (128 + int(found.group(2)) if int(found.group(2)) else 0)


def ask(*command: str, timeout_s: float = ASK_TIMEOUT_S, environment: Mapping[str, str] = os.environ) -> Answer:
    """Return the answer of one of Slurm's commands, which get none of the variables that change their answers."""
    variables = ambient.without(environment, Slurm.question_variables)
    return programs.ask(*command, timeout_s=timeout_s, variables=variables)


def listing(*command: str, timeout_s: float = ANSWER_S) -> str | None:
    """Return the stdout of a command of Slurm's, None where it is missing or fails; raises NoAnswerError where it is late, or the controller is silent."""
    answer = ask(*command, timeout_s=timeout_s)
    if answer.is_late:
        raise NoAnswerError(f"{answer.err}; try again later")
    if _is_silent(answer):
        raise NoAnswerError(f"`{' '.join(command)}`: {answer.err.strip()}; {way_on(answer) or 'try again later'}")
    return answer.out if answer.is_good else None


def _is_silent(answer: Answer) -> bool:
    """Whether there is a Slurm whose controller does not answer."""
    return answer.is_late or bool(answer.code and NO_CONTROLLER.search(answer.err))


def way_on(answer: Answer) -> str:
    """Return what helps where a question of scontrol's has this answer, which is none; empty where the controller may be away for a while."""
    if MUNGE.search(answer.text):
        return (
            "munge refuses: it does not run here, its key is another, or the clocks of this machine and the controller are minutes apart "
            "(munge -n | unmunge; timedatectl); ask the site"
        )
    if answer.code and not NO_CONTROLLER.search(answer.err) and ask("sinfo", "--noheader", timeout_s=ANSWER_S).is_good:
        return (
            "scontrol itself refuses, for sinfo answers: nlp-bench needs `scontrol show` (config, partition, job); ask the site to allow it "
            "here, or submit where it works"
        )
    return ""


def is_absent(answer: Answer) -> bool:
    """Whether the answer to CONFIG shows that there is no Slurm at all: not installed, or without a configured controller."""
    is_unconfigured = not answer.is_good and "configuration source" in answer.err
    return is_unconfigured or (answer.is_missing and not _has_sbatch())  # a container may lack scontrol alone


def _has_sbatch() -> bool:
    return shutil.which("sbatch") is not None


def cluster_name(config: str) -> str | None:
    """Return the ClusterName in the answer to CONFIG; None where it holds none, as a wrapper's own words."""
    found = re.search(r"^ClusterName\s*=\s*(\S+)", answers.plain(config), re.MULTILINE)
    return found.group(1) if found else None


def without_overrides(account: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return `variables` as sbatch is to see them: without those of jobs, but for those that are kept."""
    return ambient.without(variables, Slurm.job_variables, Slurm().kept_variables(account))


def _shown_nodes(names: list[str]) -> str | None:
    """Ask for the nodes; a controller that is restarted just now is asked again, for the job would be lost without it."""
    try:
        return listing(*SHOW, "node", ",".join(names), timeout_s=30)
    except NoAnswerError as error:
        raise SilentError(str(error)) from error


def _check_without_gpus(settings: Settings, per_node: int) -> None:
    """Refuse generic resources without a GPU where nothing else asks for GPUs; a job of whole nodes has them all, but its step may not (srun's manual)."""
    if any(word.startswith(ASKS_FOR_GPUS) for word in settings.sbatch_args):
        return
    text = f"system.slurm.gres: {settings.gres!r} asks for no GPU, where {per_node} ranks of each node need one"
    if not settings.exclusive and not any(word.startswith("--exclusive") for word in settings.sbatch_args):
        raise UsageError(
            f"{text}; write gpu,{settings.gres}, or --exclusive for whole nodes; a comma in JUBE's file makes two points: "
            "write such a list in the system file (slurm.gres)"
        )
    if not any(word.startswith(ASKS_FOR_GPUS) for word in settings.srun_args):
        say(f"warning: {text}: the job has whole nodes; should its ranks see no GPU: --srun-arg=--gres=gpu:{per_node}")


def _word(name: str, value: str) -> str:
    if not DIRECTIVE_WORD.fullmatch(value):
        two = " (give two options as two)" if " --" in value else ""
        raise UsageError(
            f"launch.{name.lower()}: {value!r} cannot stand in a #SBATCH line{two}; use letters, digits and . , : = + @ % / [ ] ( ) & | -"
        )
    return value
