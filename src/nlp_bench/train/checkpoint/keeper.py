"""Start, stop and checkpoints of the training loop."""

import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch

from nlp_bench.measure.anytime import Bound, ConfidenceSequence, percent
from nlp_bench.train import world
from nlp_bench.train.checkpoint.folder import found_checkpoint, read_record
from nlp_bench.train.logline import Interval
from nlp_bench.train.settings import Settings
from nlp_bench.train.trainer import Trainer


class Keeper:
    """Checkpoints and early ends of one rank's training: all must decide to stop in the same iteration, or the others would wait for ever."""

    def __init__(self, trainer: Trainer, say: Callable[[str], None], started_s: float, *, writes_log: bool) -> None:
        """Every rank creates one at the same time; `started_s` is by time.monotonic. With --exit-signal-handler SIGTERM no longer ends this process."""
        self._trainer, self._settings, self._say = trainer, trainer.settings, say
        self._started_s, self._signalled = started_s, False
        if self._settings.exit_signal_handler:
            signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_signalled", True))
        self.until = Until(self._settings, trainer.device, decides=writes_log)
        self._store = None
        if self._settings.save is not None:
            from nlp_bench.train.checkpoint.store import Store  # noqa: PLC0415  # its imports take a second

            self._store = Store(trainer, Path(self._settings.save).absolute())

    def begin(self) -> int:
        """Load the checkpoint for --load; return its iterations, 0 where the training starts from scratch."""
        settings = self._settings
        path = found_checkpoint(settings)
        if path is None:
            missing = f"{settings.load} holds none, the training begins anew; " if settings.load else ""
            self._say(f" > checkpoints: {missing}{self._plan()}")
            return 0
        from nlp_bench.train.checkpoint.store import load  # noqa: PLC0415  # as above

        since_s, record = time.perf_counter(), read_record(path)
        load(self._trainer, path, record)
        self._trainer.skip_to(record["consumed_samples"])
        layout = ", ".join(f"{name} {value}" for name, value in record["layout"].items())
        self._say(
            f" > checkpoints: loaded {path} in {time.perf_counter() - since_s:.2f} s: {record['iteration']} iterations, "
            f"{record['consumed_samples']} samples, made with {layout}; {self._plan()}"
        )
        return int(record["iteration"])

    def asks(self) -> tuple[bool, ...]:
        """Return whether this rank has got a signal and whether its time is over, for `Trainer.step` to combine; nothing where neither option is set."""
        limit = self._settings.exit_duration_in_mins
        if limit is None and not self._settings.exit_signal_handler:
            return ()
        return self._signalled, limit is not None and time.monotonic() - self._started_s > 60 * limit

    def why_stop(self, iteration: int, votes: tuple[bool, ...]) -> str | None:
        """Return why the training stops after this iteration, None if it does not: one of the `votes` of all ranks (`asks`) is enough, all stop together."""
        signalled, late = votes or (False, False)
        every = self._settings.exit_interval
        if signalled:
            return "exit-signal-handler: SIGTERM came"
        if late:
            return f"exit-duration-in-mins {self._settings.exit_duration_in_mins}"
        return f"exit-interval {every}" if every and iteration % every == 0 else None

    def keep(self, iteration: int, *, last: bool) -> float:
        """Write a checkpoint if one is due and return the seconds this took; every rank must call it after each good iteration."""
        if self._store is None:
            return 0.0
        settings = self._settings
        due = last or (settings.save_interval is not None and iteration % settings.save_interval == 0)
        if (due or self._store.is_writing) and self._trainer.device.type == "cuda":
            torch.cuda.synchronize()  # pending kernels of the iteration count as training
        since_s = time.perf_counter()
        if due:
            path = self._store.save(iteration, iteration * self._trainer.layout.global_batch_size)
        if last:
            self._store.close()
        else:
            self._store.finish(wait=False)
        took_s = time.perf_counter() - since_s
        if due:
            state = "is being written" if settings.async_save and not last else "saved"
            what = f"{state} after iteration {iteration} in {took_s:.2f} s, which no iteration's time contains"
            self._say(f" checkpoint {path} {what}")
        return took_s

    def how_to_resume(self, iteration: int) -> str:
        """Return the last line of a log that ends before the last iteration: how to resume, or that nothing was saved."""
        save, total = self._settings.save, self._trainer.layout.train_iters
        if save is None:
            return f" nothing was kept of iteration {iteration} of {total}: a training goes on where --save FOLDER was given"
        command = f"--load {shlex.quote(str(Path(save).absolute()))}"
        return f" {total - iteration} of {total} iterations are left: repeat the command with {command}"

    def _plan(self) -> str:
        settings = self._settings
        if settings.save is None:
            return "none are written, as a throughput run wants it (see --save)"
        when = f"every {settings.save_interval} iterations and at the end" if settings.save_interval else "at the end"
        meanwhile = ", while the training goes on" if settings.async_save else ""
        return f"written to {Path(settings.save).absolute()} {when}{meanwhile}"


class Until:
    """--until on one rank: stops when the mean time is known well enough by the log's times; without the option the ranks do not communicate."""

    def __init__(self, settings: Settings, device: torch.device, *, decides: bool) -> None:
        """Every rank creates one; the one that writes the log `decides`."""
        self._share, self._device, self._decides = settings.until, device, decides
        self._sequence: ConfidenceSequence | None = None
        if settings.until is not None:
            self._sequence = ConfidenceSequence(percent("until", settings.until), settings.log_interval)
        self._bound: Bound | None = None

    def is_enough(self, interval: Interval) -> bool:
        """Add one log line; return whether the training ends with it, on every rank the same; every rank must call it."""
        if self._sequence is None:
            return False
        # Rounded as in the log, so that the decision can be reproduced from the log.
        if self._decides and self._sequence.add(interval.iteration, round(interval.elapsed_s, 4)):
            self._bound = self._sequence.bound()
        enough = self._decides and self._bound is not None and self._bound.is_enough
        return bool(world.greatest(int(enough), self._device))

    def text(self, iteration: int, train_iters: int) -> str:
        """Return the line on whether --until was met, whose beginning last_start.py parses; empty without the option."""
        if self._sequence is None:
            return ""
        enough = self._bound is not None and self._bound.is_enough
        known = self._bound.text() if self._bound else "too few lines to bound the mean"
        verdict = "enough" if enough else "not enough"
        return f" until {self._share}: {verdict} after iteration {iteration} of {train_iters}: {known}\n"
