"""Follow runs to their end: one line per run whenever it has moved; unattended, JUBE's next steps are driven too."""

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlp_bench.config.request import WatchOptions
from nlp_bench.config.run import read_run, value_of
from nlp_bench.errors import NlpBenchError, UsageError, with_file
from nlp_bench.escape import one_line
from nlp_bench.files import age_s, real
from nlp_bench.immutable import immutable
from nlp_bench.last_start import STARTED, tail
from nlp_bench.launch.end.advice import advice, short
from nlp_bench.launch.end.ending import Ending
from nlp_bench.launch.follow.progress import BoundTracker, Growth, Progress, progress
from nlp_bench.launch.follow.runs import continue_jube, find_runs, gone, jube_runs, jube_status
from nlp_bench.launch.follow.sync import Kind, RunState, sync
from nlp_bench.launch.submission import asked_scheduler, read_submission
from nlp_bench.marker import JUBE_ERROR, why_failed
from nlp_bench.measure.anytime import Bound
from nlp_bench.outcome import Outcome
from nlp_bench.seal import LOG, OUTCOME
from nlp_bench.train.checkpoint.folder import iteration_of, newest

SCHEMA = "nlp-bench/watch/1"
MAX_FAULTS = 12  # looks in a row after which a folder whose records cannot be read is no longer waited for
OUT_OF_HOURS = 3  # exit code where --max-hours are over and a run still goes on


@immutable
class Look:
    """What one look at one run has shown."""

    folder: Path  # the run's folder
    ending: Ending | None  # how it ended; None while it goes on, or is not known
    state: RunState  # the queue's word and reason, "running here", or what is wrong
    progress: Progress | None  # how far it is, None where its log tells nothing yet
    to_type: tuple[str, ...] = ()  # what to type for a run that stands still, or has been measured well enough
    before: str = ""  # what is known of a job without a line: which of a chain it is, what is saved, how long it starts
    bound: Bound | None = None  # how well its mean time is known, where --until or its run.json asks

    @property
    def outcome(self) -> Outcome | None:
        """The word of its end."""
        return self.ending.outcome if self.ending else None

    def line(self) -> str:
        """Return it for a person; of a silent log its limit is shown, not how long it is silent, or every line would have moved."""
        if self.ending:
            text = self.ending.text()
            return text if self.outcome is Outcome.VALID else f"{text} ({short(self.ending, self.folder)})"
        if not self.progress:
            return f"{self.state}{self.before}"
        text = self.progress.text()
        if self.progress.is_stalled:
            text += f"; STALLED: the log has not grown for more than {self.progress.stall_limit_s:.0f} s"
        if self.progress.is_stalled or self.state.kind in {Kind.SILENT, Kind.READ_ONLY}:
            text += f"; {self.state}"
        text += f"; {_bound_in_words(self.bound)}" if self.bound else ""
        return text + (": see {}, or end it with {}".format(*self.to_type) if self.to_type else "")

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        far = self.progress if not self.ending else None
        found = advice(self.ending, self.folder) if self.ending else None
        shown = ("iteration", "total_iterations", "tokens_per_second", "left_s", "silent_s")
        return {
            "folder": str(self.folder),
            "outcome": self.outcome.value if self.outcome else None,
            "reasons": self.ending.texts if self.ending else [],
            "evidence": self.ending.evidence if self.ending else None,
            "state": self.state,
            **{name: getattr(far, name) if far else None for name in shown},
            "is_stalled": far.is_stalled if far else False,
            "until": self.bound.to_json() if self.bound else None,
            "logs": [str(path) for path in found.logs] if found else [],
            "next": list(found.commands if found else self.to_type),
        }


def watch(paths: list[Path], options: WatchOptions, *, every_s: float, as_json: bool) -> int:
    """Look every `every_s` seconds until all runs have ended; return 0 (all VALID), 1, or OUT_OF_HOURS before. `as_json`: a record per change on stdout."""
    return _Watching(paths, options, every_s, as_json=as_json).to_the_end()


class _Watching:
    def __init__(self, paths: list[Path], options: WatchOptions, every_s: float, *, as_json: bool) -> None:
        self.paths, self.options, self.every_s, self.as_json = paths, options, every_s, as_json
        self.earlier = {*_existing(paths), *_failed_steps(paths)} if options.new else set()
        self.bounds: dict[Path, BoundTracker] = {}
        self.growth: dict[Path, Growth] = {}
        self.shown: dict[Path, str] = {}
        self.ended: dict[Path, Look] = {}
        self.lost: set[Path] = set()
        self.faults: dict[Path, int] = {}
        self.waiting: dict[Path, str] = {}
        self.refused: set[Path] = set()
        self.num_ended: dict[Path, int] = {}
        self.last = time.monotonic() + options.max_hours * 3600 if options.max_hours is not None else float("inf")

    def to_the_end(self) -> int:
        options = self.options
        while True:
            alive = options.while_pid is not None and Path(f"/proc/{options.while_pid}").exists()
            looks = [self._look(folder) for folder in self._folders()]
            for look in looks:
                self._show(look)
            lost = self._lost(looks)
            refused = self._refused(looks)
            if options.drives:
                self._drive(looks)
            if not looks and options.while_pid is None and not self.waiting:
                if not lost and not refused:
                    self._say("nlp-bench: no submitted run below " + " ".join(map(str, self.paths)))
                return 1
            goes_on = any(look.outcome is None and self.faults.get(look.folder, 0) < MAX_FAULTS for look in looks)
            goes_on = goes_on or "RUNNING" in self.waiting.values()
            if options.once or (not alive and (options.while_pid is not None or not goes_on)):
                return 1 if lost or refused else self._code(looks)
            if time.monotonic() >= self.last:
                self._say(f"nlp-bench: {options.max_hours:g} hours are over; go on with the same command")
                return OUT_OF_HOURS
            time.sleep(min(self.every_s, max(0.0, self.last - time.monotonic())))

    def _look(self, folder: Path) -> Look:
        """Look at one run; one that has ended is not read again, and a damaged one does not hide the others."""
        if folder in self.ended and (folder / OUTCOME).exists():
            return self.ended[folder]
        try:
            ending, state = sync(folder)
            far, bound, before = None, None, ""
            if not ending and state.kind is not Kind.WAITS:  # its log, if any, is of a start before it
                far, bound = self._far(folder)
            if not ending and not far and state.kind in {Kind.GOES_ON, Kind.WAITS}:
                before = _before_its_lines(folder, is_waiting=state.kind is Kind.WAITS)
            to_type = _to_type(folder) if far and far.is_stalled and state.kind is not Kind.SILENT else ()
        except (NlpBenchError, OSError) as error:
            self.faults[folder] = self.faults.get(folder, 0) + 1
            return Look(folder=folder, ending=None, state=RunState(f"error: {with_file(error, folder)}"), progress=None)
        if bound and bound.is_enough and not to_type and not self.bounds[folder].ends_itself:
            to_type = _to_read(folder)
        self.faults.pop(folder, None)
        look = Look(
            folder=folder, ending=ending, state=state, progress=far, to_type=to_type, before=before, bound=bound
        )
        if ending:
            self.ended[folder] = look
        return look

    def _folders(self) -> list[Path]:
        """Return the runs to look at, once those that a file server hides for a moment are back."""
        found = _existing(self.paths)
        unseen = self._unseen(found) - self.lost
        if unseen and gone(unseen) != unseen:
            found = _existing(self.paths)
        return [folder for folder in found if folder not in self.earlier]

    def _unseen(self, seen: Iterable[Path]) -> set[Path]:
        """Return the runs that were followed, have not ended, and are not among `seen`."""
        return self.shown.keys() - self.ended.keys() - set(seen)

    def _lost(self, looks: list[Look]) -> set[Path]:
        """Return the runs that had not ended when they were last seen, and whose folders are no longer there; each is said once."""
        lost = self._unseen(look.folder for look in looks)
        for folder in sorted(lost - self.lost):
            self._say(f"nlp-bench: {folder} is gone or was moved; name its new place to follow it there")
        self.lost = lost
        return lost

    def _refused(self, looks: list[Look]) -> set[Path]:
        """Return JUBE's steps that failed and hold no run that was looked at: points of a sweep that were refused; each is said once."""
        seen = {look.folder for look in looks} | self.earlier
        steps = _failed_steps(self.paths) - self.earlier
        refused = {step for step in steps if seen.isdisjoint({real(step / "work"), real(step / "work" / "train")})}
        for step in sorted(refused - self.refused):
            self._say(f"{one_line(_short(step, self.paths))}: {why_failed(step)}")
        self.refused |= refused
        return refused

    def _far(self, folder: Path) -> tuple[Progress | None, Bound | None]:
        """Return how far a run is, and how well its mean time is known."""
        run, log = read_run(folder), folder / LOG
        bounds = self.bounds.setdefault(folder, BoundTracker(run, log, self.options.until))
        far = progress(run, log)
        if far:
            far = replace(far, silent_s=self.growth.setdefault(folder, Growth()).silent_s(log, far.silent_s))
        return far, bounds.look()

    def _show(self, look: Look) -> None:
        line = look.line()
        if self.shown.get(look.folder) == line:
            return
        self.shown[look.folder] = line
        if self.as_json:
            print(json.dumps({"schema": SCHEMA, **look.record()}, ensure_ascii=False), flush=True)
        else:
            self._say(f"{one_line(_short(look.folder, self.paths))}: {line}")

    def _drive(self, looks: list[Look]) -> None:
        """Let JUBE go on wherever all that it waits for has ended; a JUBE that fails is said once and asked again."""
        found = jube_runs(self.paths)
        for removed in gone(self.waiting.keys() - set(found)):  # jube remove: nothing waits there any more
            del self.waiting[removed]
        for run in found:
            below = [look for look in looks if look.folder.is_relative_to(run)]
            num_ended = sum(look.ending is not None for look in below)
            is_cut = any(look.state.kind is Kind.CUT_OFF for look in below)
            earlier = self.waiting.get(run)
            if earlier in {"FINISHED", "ERROR"} or (
                earlier == "RUNNING" and num_ended == self.num_ended.get(run) and not is_cut
            ):
                continue  # JUBE looks at every step of a run each time that it is called
            self.num_ended[run] = num_ended
            try:
                word = continue_jube(run) if num_ended or is_cut or not below else jube_status(run)
            except NlpBenchError as error:
                word = f"error: {error}"
            if self.waiting.get(run) != word:
                self._say(f"{run.name}: JUBE: {word}{_next_of_jube(run, word)}")
            self.waiting[run] = word

    def _code(self, looks: list[Look]) -> int:
        faults = [word for word in self.waiting.values() if word not in {"FINISHED", "RUNNING"}]
        return 0 if looks and not faults and all(look.outcome is Outcome.VALID for look in looks) else 1

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def _next_of_jube(run: Path, word: str) -> str:
    """Return what to type where JUBE has come to its end, in one clause; nothing while it goes on."""
    if word == "FINISHED":
        return f"; next: jube result -a {shlex.quote(str(run.parent))} --id {int(run.name)}"
    failed = sorted(run.glob(f"*/{JUBE_ERROR}")) if word == "ERROR" else []
    if not failed:
        return ""
    why = shlex.quote(str(failed[0]))
    again = f"rm {why}; jube continue {shlex.quote(str(run.parent))} --id {int(run.name)}"
    return f"; why: cat {why}; once that is mended: {again}; a wrong value of a parameter is mended in a new run"


def _bound_in_words(bound: Bound) -> str:
    """Return how well the mean is known in one clause, and that it is enough."""
    text = f"known to +-{100 * bound.half_width:.1f} %"
    if bound.is_enough:
        return f"{text}: enough for {100 * bound.within:g} %"
    needed = "" if bound.needed is None else f", about {bound.needed} iterations for {100 * bound.within:g} %"
    return f"{text}{needed}" if bound.is_steady else f"{text}, still changing its speed"


def _before_its_lines(folder: Path, *, is_waiting: bool) -> str:
    """Return which job of a chain starts, what the next one resumes from, and how long it has been starting: in minutes that double, or every line would have moved."""
    run, found = read_run(folder), read_submission(folder)
    job = f"\n{tail(folder / LOG)}".rpartition(STARTED)[2].partition("\n")[0]
    parts, minutes = [], 0
    if found and job in found.job_ids and not is_waiting:
        number, total = found.job_ids.index(job) + 1, len(found.job_ids) + found.parts_left
        parts += [f"job {number} of {total}"] if total > 1 else []
        minutes = int(min(map(age_s, (folder / "starts").glob(f"{job}-*.json")), default=0) / 60)
    for where in filter(None, (value_of(run.tuning.train_args, option) for option in ("--save", "--load"))):
        with contextlib.suppress(UsageError, OSError):
            if saved := newest(folder / where):
                parts.append(f"{iteration_of(saved)}/{run.training.iterations} saved")
                break
    parts += [f"starting for more than {1 << minutes.bit_length() - 1} min"] if minutes else []
    return "".join(f", {part}" for part in parts)


def _to_type(folder: Path) -> tuple[str, ...]:
    """Return how to see and to end the job of a run, nothing for one without."""
    found = read_submission(folder)
    return asked_scheduler(folder, found).commands(found.job_ids) if found and found.job_ids else ()


def _to_read(folder: Path) -> tuple[str, ...]:
    """Return how to read the log of a run that has been measured well enough, and to end its job; nothing without one."""
    commands = _to_type(folder)
    return (f"nlp-bench report - < {shlex.quote(str(folder / 'job.out'))}", commands[1]) if commands else ()


def _existing(paths: list[Path]) -> list[Path]:
    return find_runs(path for path in paths if path.is_dir())


def _failed_steps(paths: list[Path]) -> set[Path]:
    return {path.parent for run in jube_runs(paths) for path in run.glob(f"*/{JUBE_ERROR}")}


def _short(folder: Path, paths: list[Path]) -> str:
    """Return the folder as seen from the path that was asked for: 000000/000003_train/work."""
    above = next((real(path) for path in paths if folder.is_relative_to(real(path))), folder.parent)
    return str(folder.relative_to(above.parent))
