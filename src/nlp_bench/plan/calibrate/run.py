"""Measure this machine: the whole of `nlp-bench plan calibrate` before anything is fitted."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from nlp_bench import clock
from nlp_bench.errors import NlpBenchError
from nlp_bench.machine.timing import pick
from nlp_bench.packages import lacking
from nlp_bench.plan.calibrate.ranks import Ranks
from nlp_bench.plan.calibrate.record import Calibration
from nlp_bench.plan.calibrate.session import Session
from nlp_bench.plan.calibrate.tasks import PRECISIONS, groups

TRAINER_S = 12.0
"""What the trainer's four short runs take on a CPU; taken off the time of the rest."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is to be measured."""

    minutes: float = 5.0
    """For how long."""
    device: str = "auto"
    """auto, cpu or cuda."""
    precisions: tuple[str, ...] = ()
    """Number formats, the most important first; empty: all that the device has."""
    trainer: bool = True
    """Whether the trainer's own overhead is measured too."""


def calibrate(wish: Wish, say: Callable[[str], None]) -> Calibration | None:
    """Measure; `say` takes a line of progress. Returns None on all ranks but the first.

    Raises UsageError where the device is not there, NlpBenchError where torch is missing or nothing could be measured.
    """
    torch = _torch_version()
    ranks = Ranks.join(wish.device)
    try:
        device = pick(wish.device, ranks.local_rank)
        session = Session(device=device, ranks=ranks, say=say if ranks.rank == 0 else lambda _: None)
        begin, before = time.monotonic(), device.state()
        budget = wish.minutes * 60
        session.say(f"measuring {device.name} for about {wish.minutes:g} minutes ({before})")
        wants_trainer = wish.trainer and budget > 2 * TRAINER_S
        precisions = wish.precisions or PRECISIONS[device.kind]
        session.measure(groups(ranks, precisions), budget - TRAINER_S * wants_trainer)
        if wish.trainer and not wants_trainer:
            session.skipped.append(f"the trainer's overhead: needs more than {2 * TRAINER_S / 60} minutes in all")
        elif wish.trainer and ranks.rank == 0:
            _measure_trainer(session, precisions[0])
        ranks.wait()
        if not session.measurements:
            raise NlpBenchError(f"calibrate: nothing could be measured: {'; '.join(session.skipped[:3])}")
        return (
            Calibration(
                device=device.name,
                kind=device.kind,
                memory_bytes=device.total_bytes() // ranks.number_sharing(device.kind),
                ranks=ranks.number,
                precision=precisions[0],
                torch=torch,
                date=clock.now(),
                seconds=round(time.monotonic() - begin, 1),
                state_before=before,
                state_after=device.state(),
                skipped=tuple(session.skipped),
                measurements=tuple(session.measurements),
            )
            if ranks.rank == 0
            else None
        )
    finally:
        ranks.leave()


def _torch_version() -> str:
    try:
        import torch  # noqa: PLC0415  # takes seconds, --help must not
    except ModuleNotFoundError as error:
        raise lacking(error, "calibrate") or error from error
    return str(torch.__version__)


def _measure_trainer(session: Session, precision: str) -> None:
    from nlp_bench.plan.calibrate.trainer import measure_trainer  # noqa: PLC0415  # only here

    begin = time.monotonic()
    try:
        session.measurements += measure_trainer(session.device.kind, precision)
    except NlpBenchError as error:
        session.skipped.append(f"the trainer's overhead: {error}")
    else:
        session.say(f"the trainer's overhead: {time.monotonic() - begin:.1f} s")
