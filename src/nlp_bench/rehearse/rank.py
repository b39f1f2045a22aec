"""The rehearsal of single ranks, for callers that have settings at hand."""

from nlp_bench.errors import UsageError
from nlp_bench.rehearse.ranks import Work, rehearse_ranks
from nlp_bench.rehearse.rehearsable import rehearsable
from nlp_bench.rehearse.report import RankReport
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings


def rehearse_rank(settings: Settings, world_size: int, rank: int, *, accelerator: str = "cuda") -> RankReport:
    """Run one iteration of rank `rank` of `world_size` on tensors without data, in a process of its own; return what it found.

    With `accelerator` cuda the kernels keep what torch's kernels keep on a GPU, with cpu what they keep on a CPU. Raises
    UsageError for settings that do not fit the number of ranks, NlpBenchError for what stops the rank.
    """
    return next(rehearse_ranks([work_of(settings, world_size, rank, accelerator)]))


def work_of(settings: Settings, world_size: int, rank: int, accelerator: str = "cuda") -> Work:
    """Check and return what `rehearse_ranks` takes; torch's kernels and random tokens stand for others."""
    settings, _ = rehearsable(settings)
    layout = Layout.of(settings, world_size)
    if not 0 <= rank < world_size:
        raise UsageError(f"ranks: {rank} is none of the job's ranks 0 to {world_size - 1}")
    return Work(settings=settings, layout=layout, rank=rank, accelerator=accelerator)
