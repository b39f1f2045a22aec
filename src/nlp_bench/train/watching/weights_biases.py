"""Weights & Biases, for who asks for it: the same numbers under the same tags as in TensorBoard."""

import contextlib
from dataclasses import asdict
from typing import Any

from nlp_bench.errors import NlpBenchError
from nlp_bench.train.layout import Layout
from nlp_bench.train.logline import Interval
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.watcher import Ending, Say, Scalars, Watcher


class WeightsBiases(Watcher):
    """One run of Weights & Biases; its account, its server and its mode (WANDB_MODE) are the environment's."""

    def __init__(self, settings: Settings, layout: Layout, say: Say) -> None:
        """Start the run; raises NlpBenchError where it cannot be: it was asked for."""
        import wandb  # noqa: PLC0415  # an optional package, which settings has looked for

        try:
            self._run: Any = wandb.init(
                project=settings.wandb_project,
                name=settings.wandb_exp_name,
                dir=settings.wandb_save_dir,
                config=asdict(settings) | asdict(layout),
                settings=wandb.Settings(console="off", quiet=True),  # it would stand between the log and its reader
            )
        except Exception as error:
            raise NlpBenchError(
                f"wandb_project: Weights & Biases cannot start: {error}; log in with `wandb login`, set WANDB_MODE=offline to "
                "write files only, or leave --wandb-project out"
            ) from error
        say(f" > Weights & Biases: {self._run.url or f'offline, files in {self._run.dir}'}")

    def interval(self, interval: Interval, scalars: Scalars) -> None:
        """Hand the numbers over; they are sent by a process of its own."""
        self._run.log({**scalars, "samples vs steps": interval.consumed_samples}, step=interval.iteration)

    def end(self, ending: Ending) -> None:
        """Send the rest."""
        self._finish(ending.code)

    def close(self) -> None:
        """Close a run that was broken off."""
        self._finish(1)

    def _finish(self, code: int) -> None:
        run, self._run = self._run, None
        if run is not None:
            with contextlib.suppress(Exception):  # a lost connection is no failed training
                run.finish(exit_code=code)
