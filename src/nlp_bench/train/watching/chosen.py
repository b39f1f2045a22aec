"""Which watchers a training has, by its settings."""

from nlp_bench.train.settings import Settings
from nlp_bench.train.trainer import Trainer
from nlp_bench.train.watching.console import Console
from nlp_bench.train.watching.garbage import Garbage
from nlp_bench.train.watching.memory import MemoryReport
from nlp_bench.train.watching.phase_report import PhaseReport
from nlp_bench.train.watching.profiler import Profiler
from nlp_bench.train.watching.progress import Progress
from nlp_bench.train.watching.startup import StartUpReport
from nlp_bench.train.watching.watcher import Say, Watcher


def watchers_of(trainer: Trainer, say: Say, console: Console | None) -> list[Watcher]:
    """Return the watchers of this rank in the order in which they hear of events; `console` is the logging rank's alone.

    The start-up comes first, before any other has done anything; who adds to an interval's numbers comes before who writes
    them; progress comes last, below all lines.
    """
    settings, layout = trainer.settings, trainer.layout
    everywhere: list[Watcher] = [StartUpReport(say)]
    if settings.manual_gc:
        everywhere.append(Garbage(settings))
    if settings.profile:
        everywhere.append(Profiler(settings, layout, trainer.device, say))
    everywhere.append(MemoryReport(trainer.device, settings.pipeline_model_parallel_size, say))
    if settings.timing_log_level:
        everywhere.append(PhaseReport(trainer, say))
    return everywhere + ([] if console is None else _writers(trainer, settings, console))


def _writers(trainer: Trainer, settings: Settings, console: Console) -> list[Watcher]:
    writers: list[Watcher] = []
    if settings.tensorboard_dir:
        from nlp_bench.train.watching.tensorboard import TensorBoard  # noqa: PLC0415  # each only where it is asked for

        writers.append(TensorBoard(settings, console.say))
    if settings.wandb_project:
        from nlp_bench.train.watching.weights_biases import WeightsBiases  # noqa: PLC0415

        writers.append(WeightsBiases(settings, trainer.layout, console.say))
    if settings.mllog:
        from nlp_bench.train.watching.mllog import MlLog  # noqa: PLC0415

        writers.append(MlLog(settings, trainer.layout, trainer.device.type, console.say))
    if settings.progress == "on" or (settings.progress == "auto" and console.is_terminal):
        writers.append(Progress(console, settings, trainer.layout))
    return writers
