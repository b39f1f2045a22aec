"""What a row may state that the model of time does not know: such a row is refused, never predicted as something else."""

from collections.abc import Mapping

from nlp_bench.errors import UsageError
from nlp_bench.plan.points.cells import cell

EXPERTS = ("num_experts", "topk", "expert_ffn", "shared_expert_ffn")
COLUMNS = ("ep", *EXPERTS, "dense_layers", "head_dim", "attention", "sliding_window")
"""Columns that are read for this alone."""
_PLAIN_ATTENTION = ("mha", "gqa", "mqa")
"""Words for what `kv_heads` says."""

_NONE = ("", "0", "1")
"""Counts that say that there are none."""


def check_known(row: Mapping[str, str]) -> None:
    """Raise UsageError, naming the column, for a model or a layout that nothing here can predict or that cannot exist."""
    _check_experts(row)
    if row["attention"] and row["attention"].lower() not in _PLAIN_ATTENTION:
        raise UsageError(
            f"attention = {row['attention'][:40]!r} is not predicted: only heads with keys and values of their own "
            f"(blank, or {', '.join(_PLAIN_ATTENTION)}; kv_heads says how many)"
        )
    seq = cell(row, "seq")
    if row["sliding_window"] not in {"", "0"} and cell(row, "sliding_window") < seq:
        raise UsageError(
            f"sliding_window = {row['sliding_window'][:40]!r} below seq = {seq:g} is not predicted: attention is counted over the whole sequence"
        )
    _check_heads(row)
    _check_ranks(row)


def _check_experts(row: Mapping[str, str]) -> None:
    told = [name for name in EXPERTS if row[name] not in _NONE]
    if told:
        raise UsageError(
            f"{told[0]} = {row[told[0]][:40]!r}: a mixture of experts is not predicted, only models in which every token sees every weight"
        )
    if row["ep"] not in _NONE:
        raise UsageError(
            f"ep = {row['ep'][:40]!r}: expert parallelism is not predicted, only dense models (ep blank or 1)"
        )


def _check_heads(row: Mapping[str, str]) -> None:
    hidden, heads, tensor = cell(row, "hidden"), cell(row, "heads"), cell(row, "tp")
    if hidden % heads:
        raise UsageError(f"hidden = {hidden:g} is not a multiple of heads = {heads:g} (remainder {hidden % heads:g})")
    width = cell(row, "head_dim", hidden / heads)
    if width != hidden / heads:
        raise UsageError(
            f"head_dim = {width:g} is not hidden / heads = {hidden / heads:g}: heads of another width are not predicted"
        )
    if tensor > heads:
        raise UsageError(f"tp = {tensor:g} is more than heads = {heads:g}: a head lies on one rank")


def _check_ranks(row: Mapping[str, str]) -> None:
    gpus, tensor, pipeline, context = (cell(row, name, 1.0) for name in ("n_gpus", "tp", "pp", "cp"))
    group = tensor * pipeline * context
    if group > gpus:
        raise UsageError(f"tp x pp x cp = {group:g} is more than n_gpus = {gpus:g}")
    data = cell(row, "dp", gpus // group)
    if group * data != gpus:
        product = f"tp x pp x cp x dp = {tensor:g} x {pipeline:g} x {context:g} x {data:g} = {group * data:g}"
        raise UsageError(f"{product} is not n_gpus = {gpus:g}")
