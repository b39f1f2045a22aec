"""The largest GPT that trains so many tokens on a machine in so many days, by prediction.

What NeMo's auto-configurator recommends by one assumed rate for all sizes (BigNLP's guide, section 5.3.1.1), this asks of the
forecast of each size's best layout.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from nlp_bench.config import catalog
from nlp_bench.config.model import Architecture, Model
from nlp_bench.config.parameters import num_parameters
from nlp_bench.plan.answer.answer import Row, rows_of
from nlp_bench.plan.search.problem import Problem
from nlp_bench.plan.search.search import search

DAY_S = 86400
NEMO_FLOPS = 140e12
"""FLOP/s of one GPU that NeMo assumes (`tflops_per_gpu: 140` in the guide's section 5.3.2.2.1)."""
SHAPES = ("gpt_126m", "gpt_1_3b", "gpt_2_7b", "gpt_5b", "gpt_20b", "gpt_40b", "175")
"""Published shapes; between two of them widths are interpolated."""
HEAD = 128
"""Width of a head of the shapes between (64 below a hidden size of 2048), as most published ones have."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """One size and its prediction."""

    model: Model
    """The shape."""
    published: bool
    """Whether it is a file of benchmark/models; else interpolated between two."""
    row: Row | None
    """Its best layout; None where none fits."""

    @property
    def days(self) -> float | None:
        """Days of the training."""
        return None if self.row is None else self.row.report_s / DAY_S


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The largest size within the days, and its neighbours."""

    days: float
    """Days at hand."""
    problem: Problem
    """The question of the size that was looked at last: machine, nodes and tokens are the same for all."""
    chosen: Size | None
    """The largest that is predicted to finish; None where not even the smallest does."""
    looked_at: tuple[Size, ...]
    """All sizes that were predicted, smallest first."""

    @property
    def nemo_parameters(self) -> float:
        """Parameters that NeMo's formula allows: days = 8 P T / (GPUs x 140e12 x 86400), solved for P."""
        return self.days * DAY_S * self.problem.num_gpus * NEMO_FLOPS / (8 * self.problem.tokens)


def nemo_days(parameters: float, tokens: float, num_gpus: int) -> float:
    """Return NeMo's estimate of the days: 8 FLOPs per parameter and token (full recompute) at 140 TFLOP/s per GPU."""
    return 8 * parameters * tokens / (num_gpus * NEMO_FLOPS * DAY_S)


def recommend(days: float, make: Callable[[Model], Problem]) -> Recommendation:
    """Halve the list of sizes until the largest that finishes in `days` is found; `make` asks the question of one size."""
    sizes = candidates()
    seen: dict[int, Size] = {}
    low, high = -1, len(sizes)  # sizes[low] finishes, sizes[high] does not
    problem = make(sizes[0][0])
    while high - low > 1:
        middle = (low + high) // 2
        problem = make(sizes[middle][0])
        seen[middle] = _predicted(problem, published=sizes[middle][1])
        taken = seen[middle].days
        low, high = (middle, high) if taken is not None and taken <= days else (low, middle)
    return Recommendation(
        days=days, problem=problem, chosen=seen.get(low), looked_at=tuple(seen[place] for place in sorted(seen))
    )


def _predicted(problem: Problem, *, published: bool) -> Size:
    found = search(problem)
    rows = rows_of(found.space.legal.take(found.ranked[:1]), problem) if len(found.ranked) else []
    return Size(model=problem.model, published=published, row=rows[0] if rows else None)


def candidates() -> list[tuple[Model, bool]]:
    """Return the sizes, smallest first, each with whether it is published."""
    files = [catalog.load_model(name) for name in SHAPES]
    found = [(model, True) for model in files]
    for below, above in itertools.pairwise(files):
        step = 512 if above.architecture.hidden_size <= 6144 else 1024
        start = below.architecture.hidden_size // step * step + step
        widths = range(start, above.architecture.hidden_size, step)
        found += [(between(below, above, width), False) for width in widths]
    return sorted(found, key=lambda pair: parameters_of(pair[0]))


def parameters_of(model: Model) -> int:
    """Return its parameters."""
    return num_parameters(model.family, model.architecture)


def between(below: Model, above: Model, hidden: int) -> Model:
    """Return a model of this width, its layers interpolated along the logarithm of the width and rounded to a multiple of 4."""
    low, high = below.architecture, above.architecture
    share = math.log(hidden / low.hidden_size) / math.log(high.hidden_size / low.hidden_size)
    layers = max(4, round((low.num_layers + share * (high.num_layers - low.num_layers)) / 4) * 4)
    shape: Architecture = replace(
        low,
        num_layers=layers,
        hidden_size=hidden,
        ffn_hidden_size=4 * hidden,
        num_attention_heads=hidden // (HEAD if hidden >= 2048 else 64),
    )
    billion = float(f"{num_parameters(below.family, shape) / 1e9:.3g}")
    return replace(below, name=f"gpt_{billion:g}b", parameters_billion=billion, architecture=shape)


def batch_for(default: int, num_gpus: int) -> int:
    """Return the multiple of the GPUs that is nearest to a model's default batch, at least one sample per GPU."""
    return max(1, round(default / num_gpus)) * num_gpus
