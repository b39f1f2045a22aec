"""The answer to: how large a model, as text or markdown."""

from nlp_bench.plan.answer.size import DAY_S, NEMO_FLOPS, SHAPES, Recommendation, Size, nemo_days, parameters_of
from nlp_bench.plan.output.table import column, digits, say
from nlp_bench.show.grid import Column, Style, tokens_in_words

CHOSEN = " <"


def size_lines(found: Recommendation, style: Style) -> list[str]:
    """Return the answer to: how large a model in these days."""
    problem = found.problem
    asked = (
        f"largest GPT that trains {tokens_in_words(problem.tokens)} tokens in {found.days:g} days on {problem.system.name}, "
        f"{problem.nodes} nodes x {problem.gpus_per_node} = {problem.num_gpus} GPUs: predicted, not measured"
    )
    nemo = (
        f"NeMo's formula, days = 8 P T / (GPUs x {NEMO_FLOPS / 1e12:g} TFLOP/s), allows {found.nemo_parameters / 1e9:.1f} billion "
        "parameters here, whatever the layout"
    )
    shapes = (
        "sizes without a file in benchmark/models are interpolated between two that have one; the batch is the nearest file's, rounded "
        "to a multiple of the GPUs (--global-batch-size sets it)"
    )
    return [
        *style.heading(asked),
        *say(style, _recommended(found)),
        "",
        *style.table(_columns(found)),
        "",
        *say(style, nemo, shapes),
    ]


def _recommended(found: Recommendation) -> str:
    size = found.chosen
    if size is None or size.row is None or size.days is None:
        return "not even the smallest size finishes: give more days or nodes, or fewer tokens"
    shape = size.model.architecture
    shaped = f"{shape.num_layers} layers, hidden size {shape.hidden_size}, {shape.num_attention_heads} heads"
    last = ", the largest shape known here" if size.model.name == SHAPES[-1] else ""
    return f"recommended: {size.model.name}{last}, {shaped}: {digits(size.days)} days with {size.row.sizes.layout}"


def _columns(found: Recommendation) -> list[Column]:
    sizes, problem = found.looked_at, found.problem
    rows = [size.row for size in sizes]
    nemo = [nemo_days(parameters_of(size.model), problem.tokens, problem.num_gpus) for size in sizes]
    return [
        column("size", [size.model.name + (CHOSEN if size is found.chosen else "") for size in sizes], is_text=True),
        column("10^9\nparameters", [f"{parameters_of(size.model) / 1e9:.3g}" for size in sizes]),
        column("layers", [size.model.architecture.num_layers for size in sizes]),
        column("hidden\nsize", [size.model.architecture.hidden_size for size in sizes]),
        column("batch", [row.sizes.global_batch_size if row else "" for row in rows]),
        column("\ndays", [_days(size) for size in sizes]),
        column(
            "90 %\ninterval",
            [f"{digits(row.low_s / DAY_S)}-{digits(row.high_s / DAY_S)}" if row else "" for row in rows],
        ),
        column("NeMo's\ndays", [digits(days) for days in nemo]),
        column("\nlayout", [row.sizes.layout if row else "" for row in rows], is_text=True),
    ]


def _days(size: Size) -> str:
    return "does not fit" if size.days is None else digits(size.days)
