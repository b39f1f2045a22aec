"""What the soak on Slurm will do, from its seed alone: the jobs, and which fault meets which of them when."""

import dataclasses
import random
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run

STUB = Path(__file__).resolve().parents[1] / "faults/stub"
SHARES = {
    "cancel_running": 0.05, "cancel_pending": 0.04, "requeue": 0.04, "suspend": 0.05, "node_down": 0.05, "slurmd_killed": 0.04,
    "submit_killed": 0.06, "follower_killed": 0.04, "disk_full": 0.03, "fails": 0.04,
}  # fmt: skip
"""Faults that meet one job (and whoever shares its node or disk), with their shares of all jobs."""
JUBE_SHARE, DISK_SHARE, RETRY_SHARE, FOLLOW_SHARE = 0.1, 0.08, 0.5, 0.03
OF_JUBE = ("", "cancel_running", "requeue", "suspend", "node_down", "fails")
"""Faults of jobs that JUBE submits: one process submits them all, in a row."""
QUICK = ("cancel_running", "cancel_pending", "suspend", "node_down", "submit_killed", "fails")
"""Faults of a small soak, which is over in seconds."""
ALL_AT_ONCE = {"controller_stopped": 30, "controller_restarted": 40, "controller_killed": 50, "watch_killed": 15}
"""Faults that meet all, each once for so many jobs."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    number: int  # its number, which names its folder
    seconds: float  # how long its training takes
    place: str  # "folder", "jube", or "disk": the small one that may be full
    fault: str  # what will be done to it; empty: nothing
    moment: float  # when, as a share of its training (or of the seconds that a submit takes)
    wait_s: float  # how long what was done lasts, before it is taken back
    retries: int  # further jobs that it may have
    follows: bool  # whether its submit leaves a follower

    @property
    def name(self) -> str:
        return f"{self.number:03d}"


@dataclass(frozen=True, kw_only=True)
class Event:
    kind: str  # its name
    after: int  # it comes once so many jobs have been submitted
    wait_s: float  # how long it lasts


def plans(num: int, seed: int, *, has_disk: bool) -> list[Plan]:
    """Return `num` jobs; with less than 20 every second one has a quick fault, each of another kind."""
    dice = random.Random(seed)  # noqa: S311  # no secret
    kinds = [kind for kind in SHARES if has_disk or kind != "disk_full"]
    counts = {kind: max(1, round(SHARES[kind] * num)) for kind in kinds}
    faults = (
        [kind for kind in kinds for _ in range(counts[kind])]
        if num >= 20
        else dice.sample(QUICK, min(num // 2, len(QUICK)))
    )
    faults += [""] * (num - len(faults))
    dice.shuffle(faults)
    jube = [number for number in range(num) if faults[number] in OF_JUBE]
    jube = dice.sample(jube, min(len(jube), max(2, round(JUBE_SHARE * num))))
    made = []
    for number, fault in enumerate(faults):
        is_jube = number in jube
        on_disk = (dice.random() < DISK_SHARE and has_disk and not is_jube) or fault == "disk_full"
        made.append(
            Plan(
                number=number, seconds=dice.uniform(1.0, 4.0 if num >= 20 else 2.0), place="jube" if is_jube else "disk" if on_disk else "folder", fault=fault,
                moment=dice.uniform(0.05, 0.9), wait_s=dice.uniform(2.0, 5.0) if dice.random() < 0.6 else dice.uniform(11.0, 15.0),
                retries=2 if dice.random() < RETRY_SHARE else 0,
                follows=not is_jube and (fault == "follower_killed" or dice.random() < FOLLOW_SHARE),
            )
        )  # fmt: skip
    return made


def events(num: int, seed: int) -> list[Event]:
    """Return the faults that meet all, in their order; a small soak has the harmless ones only."""
    dice = random.Random(seed + 1)  # noqa: S311
    made = []
    for kind, every in ALL_AT_ONCE.items():
        count = round(num / every) if num >= 20 else int(kind == "controller_stopped")
        last = 0.6 if kind == "controller_killed" else 0.95  # what it has forgotten is given up 300 s later
        made += [
            Event(
                kind=kind,
                after=dice.randrange(1, max(2, int(last * num))),
                wait_s=dice.uniform(0.5, 5.0 if num >= 20 else 1.0),
            )
            for _ in range(count)
        ]
    return sorted(made, key=lambda event: event.after)


def run_of(plan: Plan, oracle: Path, base: Run) -> Run:
    """Return the run of a plan: 4 iterations of the stand-in trainer, which tells the oracle what it does."""
    mode = "exit 5" if plan.fault == "fails" else f"slow {plan.seconds / 4:.3f}"
    words = ("--hold",) if plan.fault == "cancel_pending" else ()
    environment = {"PYTHONPATH": str(STUB), "NLP_BENCH_STUB": mode, "NLP_BENCH_ORACLE": str(oracle)}
    system = dataclasses.replace(
        base.system,
        slurm=dataclasses.replace(base.system.slurm, sbatch_args=words, gres=""),
        environment={**base.system.environment, **environment},
    )
    limits = dataclasses.replace(base.limits, retries=plan.retries)
    return dataclasses.replace(base, system=system, limits=limits)


def base_run() -> Run:
    request = Request(
        model="tiny", system="slurm-sandbox", launcher="slurm", data_path="mock", iterations=4, nodes=1, gpus_per_node=1, tensor=1, pipeline=1
    )  # fmt: skip
    run = resolve(request, ask_scheduler=False)
    return dataclasses.replace(run, launch=dataclasses.replace(run.launch, timelimit="00:30:00"))
