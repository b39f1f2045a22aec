"""Times the phases of every iteration on every rank, and prints them."""

from collections.abc import Iterator

from nlp_bench.train.logline import Interval
from nlp_bench.train.trainer import Trainer
from nlp_bench.train.watching.phases import DATA, PHASES, TIMERS, PhaseSum, phases_of, table_lines
from nlp_bench.train.watching.ranks import gather
from nlp_bench.train.watching.timers import Timers
from nlp_bench.train.watching.watcher import Ending, Say, Scalars, Watcher


class PhaseReport(Watcher):
    """Prints a table after each log line, in Megatron-LM's form, and one sentence at the end."""

    def __init__(self, trainer: Trainer, say: Say) -> None:
        """Hand the timers to everything that starts them."""
        self._say, self._device = say, trainer.device
        self._details = trainer.settings.timing_log_level > 1
        self._num_stages = trainer.settings.pipeline_model_parallel_size
        self._timers = Timers(trainer.device)
        for config in (trainer.model[0].config, *_optimizer_configs(trainer)):
            config.timers = self._timers
        trainer.watch_data(lambda batches: self._timers.timed(DATA, batches))
        self._num_iterations, self._sum = 0, PhaseSum(self._num_stages)
        window = (trainer.settings.profile_step_start, trainer.settings.profile_step_end)
        self._profiled = range(*window) if trainer.settings.profile else range(0)

    def after(self, iteration: int) -> None:  # noqa: ARG002
        """Read the events that have passed."""
        self._num_iterations += 1
        self._timers.settle()

    def interval(self, interval: Interval, scalars: Scalars) -> None:
        """Gather the interval's seconds and print them."""
        own, count = self._timers.take(), self._num_iterations
        rows = gather([own.get(name, 0.0) for name in TIMERS], self._device)
        self._num_iterations = 0
        phases = [list(phases_of(row).values()) for row in rows]
        names = [name for name, _ in PHASES.values()]
        table = [(name, [row[i] / count for row in phases]) for i, name in enumerate(names)]
        if self._details:
            table += [(f"timer {name}", [row[i] / count for row in rows]) for i, name in enumerate(TIMERS)]
        self._say("\n".join(table_lines(table)))
        scalars |= {f"{name}-time": max(seconds) for name, seconds in table if max(seconds) > 0}
        slowed = any(i in self._profiled for i in range(interval.iteration - count + 1, interval.iteration + 1))
        self._sum.add(phases, interval.elapsed_s * count, count, spoilt=slowed)

    def end(self, ending: Ending) -> None:  # noqa: ARG002
        """Print what the time went to."""
        for line in self._sum.lines():
            self._say(line)


def _optimizer_configs(trainer: Trainer) -> Iterator[object]:
    for part in getattr(trainer.optimizer, "chained_optimizers", [trainer.optimizer]):
        yield part.config
