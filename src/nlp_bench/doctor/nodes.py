"""A test of every node at once as a job: which nodes, its folder and script, waiting for the records of the nodes; and what makes them.

On each node run its own checks, the rates of its devices, the exchange with the others, and the vendors' tests. Each step is recorded
when it is done, so that a node that dies leaves how far it came; whatever fails is a line of its record.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from nlp_bench.clock import now, stamp
from nlp_bench.config import catalog
from nlp_bench.config.request import Request
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import ACTIVE, SilentError, State, get_scheduler
from nlp_bench.doctor.checks import PER_NODE, examine
from nlp_bench.doctor.place import Place, look_around
from nlp_bench.doctor.scheduler import Node, nodes_of, partition_nodes, queue_of
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.files import read_json, read_object, real, write_json, write_text
from nlp_bench.immutable import immutable
from nlp_bench.launch import lock, once
from nlp_bench.launch.nodes.torchrun import port_of
from nlp_bench.launch.scheduler.slurm import PARTITIONS, listing
from nlp_bench.launch.scheduler.slurm_answers import hostnames, hostnames_command
from nlp_bench.launch.script import job_script
from nlp_bench.machine.node import node_name, text_of
from nlp_bench.orphans import die_with_parent
from nlp_bench.programs import ask

PLAN_SCHEMA = "nlp-bench/doctor-plan/1"
NODE_SCHEMA = "nlp-bench/doctor-node/1"
PLAN = "plan.json"
EXPECTED = "nodes.txt"  # the nodes that Slurm gave, one per line: written by the job script
RECORDS = "nodes"  # folder of the nodes' records, NODE.json each
TIMELIMIT = "00:10:00"  # the test takes a minute; makers' tests take a few
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 10.0  # seconds between two queries of Slurm, growing
SETTLE_S = 3.0
"""Seconds for the last records to come through the shared file system after the job has ended, and for a request that Slurm had
received to become a job."""
ITS_NODE = "--nodelist=@node@"  # placeholder in srun's options for the node of one step, replaced in the script's loop
COMMENT = "nlp-bench-doctor"  # beginning of the comment of a test's job
LISTED = re.compile(r"[\w.,\[\]-]*[A-Za-z][\w.,\[\]-]*")


@immutable
class Choice:
    """The nodes of a test."""

    names: tuple[str, ...]  # their names in Slurm's order; empty where Slurm chooses `number` of them
    number: int
    down: tuple[Node, ...] = ()  # nodes that were requested, but that Slurm allocates to no job


@immutable(kw_only=False)
class End:
    """How a test ended."""

    why: str = ""  # in words; empty where all nodes have finished
    is_started: bool = True  # whether its job has left the queue


def choose(place: Place, which: str) -> Choice:
    """Return the nodes that `which` names: all, a number, or a list as Slurm writes it.

    Raises UsageError for a word that is none of these, NlpBenchError where none of the nodes is up.
    """
    if not place.is_slurm:
        if which not in {"all", "1"}:
            raise UsageError(f"--nodes: {which!r}, but without Slurm there is this machine only: --nodes all")
        return Choice(names=(), number=1)
    if not place.slurm.is_good:
        raise NlpBenchError(f"--nodes: Slurm does not answer: {place.slurm.text}; try `scontrol ping`")
    if place.is_inside:
        return _allocated(place, which)
    if which.isdecimal():
        if int(which) < 1:
            raise UsageError(f"--nodes: {which} is less than 1")
        return Choice(names=(), number=int(which))
    if which == "all":
        nodes = partition_nodes(queue_of(place, listing(*PARTITIONS) or ""))
    elif LISTED.fullmatch(which):
        nodes = nodes_of(which)
    else:
        raise UsageError(f"--nodes: {which!r} is neither all nor a number nor a list like node[1-3],node7")
    up = tuple(node.name for node in nodes if not node.is_down)
    down = tuple(node for node in nodes if node.is_down)
    if not up:
        said = "; ".join(f"{node.name} {node.state} {node.reason}".strip() for node in down[:5])
        raise NlpBenchError(f"--nodes: none of the {len(nodes)} node(s) is up: {said}; see `sinfo -R`")
    return Choice(names=up, number=len(up), down=down)


def _allocated(place: Place, which: str) -> Choice:
    if which != "all":
        raise UsageError("--nodes: inside an allocation all of its nodes are tested: --nodes all")
    words = place.variables.get("SLURM_JOB_NODELIST", "")
    names = hostnames(listing(*hostnames_command(words)) or "")
    if not names:
        raise NlpBenchError(f"--nodes: Slurm does not tell the nodes of this allocation ({words!r})")
    return Choice(names=tuple(names), number=len(names))


def prepare(place: Place, choice: Choice, folder: Path | None, *, join_s: float) -> Path:
    """Write plan.json, run.json and doctor.job into a new folder and return it.

    The first node waits `join_s` seconds for the others. Raises UsageError for a folder that cannot be made or holds a test already.
    """
    if place.run is None:
        raise UsageError(f"--nodes: {place.no_run}")
    folder = (folder or place.root / "reports" / "doctor" / stamp()).absolute()
    if (folder / PLAN).exists():
        raise UsageError(f"--output: {folder} holds a test of nodes already; name a new folder")
    try:
        (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output: cannot create {folder}: {explained(error)}; or name a writable folder") from error
    run, name = _run(place.run, choice), place.system_name
    run.write(folder)
    if run.launch.launcher == "slurm":
        template = catalog.part("jube/doctor.job.in").read_text(encoding="utf-8")
        script = job_script(run, template=template, root=place.root, run_dir=folder)
        write_text(folder / "doctor.job", script.replace(ITS_NODE, '--nodes=1 --ntasks=1 --nodelist="$node"'))
    plan = {
        "schema": PLAN_SCHEMA,
        # Absolute: the job runs in another folder.
        "system": str(real(name)) if name.endswith(".toml") else name,
        "model": place.model,
        "launcher": run.launch.launcher,
        "accelerator": place.accelerator,
        "nodes": list(choice.names),
        "join_s": join_s,
    }
    write_json(folder / PLAN, plan)  # last: the folder is complete now
    return folder


def _run(run: Run, choice: Choice) -> Run:
    """Return the run whose job the test is: one task on each node, none killed when another fails."""
    listed = (f"--nodelist={','.join(choice.names)}",) if choice.names else ()
    settings = replace(
        run.system.slurm,
        dependency="",
        sbatch_args=(*run.system.slurm.sbatch_args, "--no-kill", *listed),
        srun_args=(*run.system.slurm.srun_args, ITS_NODE),
    )
    return replace(
        run,
        system=replace(run.system, slurm=settings),
        launch=replace(run.launch, job_name="nlp-bench-doctor", timelimit=TIMELIMIT),
        parallel=replace(run.parallel, nodes=choice.number, tensor=1, pipeline=1, context=1),
    )


def carry_out(place: Place, run_dir: Path, *, wait_s: float, say: Callable[[str], None]) -> End:
    """Run the test in `run_dir` and return how it ended; the records are in the folder then.

    A job that is not done after `wait_s` seconds, or when this process is interrupted, is cancelled.
    """
    if place.run is None or place.run.launch.launcher == "local":
        return _here([sys.executable, "-m", "nlp_bench", "doctor", "--test-this-node", str(run_dir)], run_dir, wait_s)
    if place.is_inside:
        return _here(["bash", str(run_dir / "doctor.job")], run_dir, wait_s)
    job_id, end = _submitted(run_dir, place.run.launch.account), End("interrupted")
    try:
        say(f"Submitted batch job {job_id}")
        end = _wait(job_id, run_dir, wait_s, say)
    finally:
        if end.why:
            get_scheduler("slurm").cancel([job_id])
    return end


def _submitted(run_dir: Path, account: str) -> str:
    """Submit the job to Slurm; if this process is stopped meanwhile, a job that was submitted is cancelled, known by its comment."""
    comment = f"{COMMENT}:{secrets.token_hex(8)}"
    try:
        with lock.held(run_dir) as handle:
            return once.hand_over(
                get_scheduler("slurm"), run_dir / "doctor.job", account=account, comment=comment, lock=handle
            )
    except (KeyboardInterrupt, SystemExit):
        with contextlib.suppress(SilentError):
            if not _jobs(comment):
                time.sleep(SETTLE_S)
            get_scheduler("slurm").cancel(_jobs(comment))
        raise


def _jobs(comment: str) -> list[str]:
    return [job.job_id for job in get_scheduler("slurm").jobs(ended=False) if job.comment.startswith(comment)]


def _here(words: list[str], run_dir: Path, wait_s: float) -> End:
    own = os.getpid()
    with (run_dir / "job.out").open("ab") as out, (run_dir / "job.err").open("ab") as err:
        process = subprocess.Popen(
            words, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGTERM, parent=own),  # noqa: PLW1509  # no threads here
        )  # fmt: skip
        try:
            status = process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            return End(f"not done after {wait_s:g} s")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    return End(f"exit status {status}" if status else "")


def _wait(job_id: str, run_dir: Path, wait_s: float, say: Callable[[str], None]) -> End:
    """Return once all nodes have finished or the job has, or why it was given up."""
    end, pause, reported, is_started = time.monotonic() + wait_s, FIRST_PAUSE_S, "", False
    while time.monotonic() < end:
        steps = {read_node(run_dir, name).get("step") for name in expected(run_dir)}
        if steps == {"finished"}:
            return End()
        if steps == {"finished", None}:  # these have waited for the others, as long as --join says
            time.sleep(SETTLE_S)
            silent = ", ".join(_unfinished(run_dir))
            return End(f"cancelled: it went on waiting for {silent}" if silent else "")
        job = get_scheduler("slurm").query(job_id)  # None: Slurm does not answer, and the records may come nevertheless
        is_started |= bool(steps - {None}) or (job is not None and job.state in {State.RUNNING, State.ENDING})
        if job and job.state not in ACTIVE:
            time.sleep(SETTLE_S if _unfinished(run_dir) else 0)
            if job.state is State.ENDED and job.outcome is None:
                return End()
            why = f"job {job_id}: {job.word or job.state.name} {job.reason}".strip()
            return End(why, is_started or not job.is_unstarted)
        waiting = f"{job.word} ({job.reason})" if job and job.state is State.WAITING else ""
        if job and job.reason not in {"", "None"} and waiting not in {"", reported}:
            say(f"job {job_id}: {waiting}")
            reported = waiting
        time.sleep(min(pause, max(end - time.monotonic(), 0)))
        pause = min(pause * 1.2, LAST_PAUSE_S)
    if not is_started:
        still = f"job {job_id} was still {reported or 'waiting'} after {wait_s:g} s"
        return End(f"{still}; a longer --wait, or --nodes N", is_started=False)
    return End(f"job {job_id} was not done after {wait_s:g} s and was cancelled")


def _unfinished(run_dir: Path) -> list[str]:
    return [name for name in expected(run_dir) if read_node(run_dir, name).get("step") != "finished"]


def expected(run_dir: Path) -> list[str]:
    """Return the nodes of the test: those that Slurm allocated, else those that were requested."""
    try:
        return (run_dir / EXPECTED).read_text(encoding="utf-8").split()
    except OSError:
        return [str(name) for name in read_object(run_dir / PLAN).get("nodes", [])]


def read_node(run_dir: Path, name: str) -> dict[str, Any]:
    """Return the record of a node, {} without one."""
    record = read_object(run_dir / RECORDS / f"{name}.json")
    return record if record.get("schema") == NODE_SCHEMA else {}


def read_nodes(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the record of each expected node; {} for one that left none. Without Slurm it is the one that exists."""
    names = expected(run_dir) or sorted(path.stem for path in (run_dir / RECORDS).glob("*.json"))
    return {name: read_node(run_dir, name) for name in names}


def end_of_errors(run_dir: Path) -> list[str]:
    """Return the last lines of job.err, where srun says which node it could not reach."""
    return [line for line in text_of(run_dir / "job.err").splitlines() if line.strip()][-5:]


SLOWEST_TURN_S = 30.0  # seconds that virtual nodes of one machine wait for each other
LIMIT_S = 240.0  # seconds for each of the vendors' tests
LEVEL = "1"  # DCGM's level 1 takes seconds: deployment, permissions, retired pages, NVLink


def test_this_node(folder: Path) -> None:
    """Run the tests of plan.json in `folder` and write nodes/NODE.json there."""
    plan = read_json(folder / PLAN, PLAN_SCHEMA)
    name, on_gpus = node_name(os.environ), plan["accelerator"] == "cuda"
    path = folder / RECORDS / f"{name}.json"
    record: dict[str, Any] = {
        "schema": NODE_SCHEMA,
        "node": name,
        "number": _number(folder, name),
        "host": socket.gethostname(),
        "began": now(),
        "step": "began",
        "errors": {},
    }
    write_json(path, record)
    steps: dict[str, Callable[[], Any]] = {
        "checks": lambda: _checks(folder, plan),
        "devices": lambda: _devices(folder, plan["accelerator"]),
        "exchange": lambda: _exchange(record["number"], plan),
        "vendor": lambda: vendor_tests(len(record.get("devices") or []) if on_gpus else 0),
    }
    for step, make in steps.items():
        start = time.monotonic()
        try:
            record[step] = make()
        except Exception as error:  # noqa: BLE001  # a sick node is what is looked for: it says what it can
            record[step] = None
            record["errors"][step] = f"{type(error).__name__}: {error}"
        record[f"{step}_s"] = round(time.monotonic() - start, 3)
        record["step"] = step
        write_json(path, record)
    write_json(path, record | {"step": "finished", "finished": now()})


def _number(folder: Path, name: str) -> int:
    """Return the index of this node in Slurm's order, which NLP_BENCH_NODES has too; SLURM_NODEID counts within a step."""
    names = text_of(folder / EXPECTED).split()
    return names.index(name) if name in names else 0


def _checks(folder: Path, plan: dict[str, Any]) -> list[dict[str, Any]]:
    place = look_around(Request(system=plan["system"], model=plan["model"], launcher=plan["launcher"]), runs=folder)
    return [one.to_json() for one in examine(place, PER_NODE)]


def _devices(folder: Path, accelerator: str) -> list[dict[str, Any]]:
    from nlp_bench.doctor import rates  # noqa: PLC0415  # torch takes a second or two

    with _turn(folder):
        return rates.measure_devices(accelerator)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let the virtual nodes of one machine take turns: two that measure at once would disturb each other."""
    machine = text_of(Path("/proc/sys/kernel/random/boot_id")).strip() or socket.gethostname()
    end = time.monotonic() + SLOWEST_TURN_S
    with (folder / f".turn-{machine}").open("w") as stream:
        while not _has_lock(stream) and time.monotonic() < end:
            time.sleep(0.02)
        yield


def _has_lock(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: they measure at once
        return True
    return True


def _exchange(number: int, plan: dict[str, Any]) -> dict[str, Any] | None:
    addresses = os.environ.get("NLP_BENCH_NODES", "").split()
    if len(addresses) < 2:
        return None
    from nlp_bench.doctor.rates import exchange  # noqa: PLC0415  # as above

    port = port_of(os.environ.get("SLURM_JOB_ID", "0"))
    return exchange(addresses, port, number, accelerator=plan["accelerator"], join_s=float(plan["join_s"]))


def vendor_tests(num_gpus: int) -> list[dict[str, Any]]:
    """Return the results of the vendors' tests that are installed: name, whether it passed, a value, the end of the output.

    `dcgmi diag -r LEVEL` (NVIDIA DCGM user guide, "DCGM Diagnostics"): exit status 0 where every test passed. `all_reduce_perf` of
    github.com/NVIDIA/nccl-tests: "# Avg bus bandwidth    : X" in GB/s; one process drives all GPUs of the node.
    """
    found: list[dict[str, Any]] = []
    if num_gpus and shutil.which("dcgmi"):
        answer = ask("dcgmi", "diag", "-r", LEVEL, timeout_s=LIMIT_S)
        failures = [line.strip() for line in answer.out.splitlines() if re.search(r"\bFail", line)]
        output = "; ".join(failures)[:500] or ("" if answer.is_good else answer.text)
        found.append({"name": "dcgmi diag", "is_passed": answer.is_good and not failures, "said": output})
    if num_gpus > 1 and shutil.which("all_reduce_perf"):
        words = ("all_reduce_perf", "-b", "8M", "-e", "256M", "-f", "2", "-g", str(num_gpus))
        answer = ask(*words, timeout_s=LIMIT_S)
        value = re.search(r"Avg bus bandwidth\s*:\s*([\d.]+)", answer.out)
        is_passed = answer.is_good and "FAILED" not in answer.out
        output = "" if answer.is_good else answer.text
        rate = float(value.group(1)) if value else None
        found.append({"name": "all_reduce_perf", "is_passed": is_passed, "said": output, "bus_gb_per_s": rate})
    return found
