"""In what an offer lies outside of the published measurements: there the prediction is an extrapolation."""

from collections.abc import Iterator, Sequence

from nlp_bench.plan.bid.points import Offered, generation, is_kin, number, of_gpu

RANGES = {
    "n_gpus": "number of GPUs",
    "params_b": "model size in 10^9 parameters",
    "seq": "sequence length",
    "tp": "tensor-parallel size",
    "pp": "pipeline-parallel size",
    "vpp": "virtual stages",
    "cp": "context-parallel size",
    "mbs": "micro batch size",
    "gpus_per_node": "GPUs per node",
    "internode_gbps_per_node": "network of a node in Gbit/s",
}
"""Columns whose range is looked at, in words."""


def extrapolated(offered: Offered, rows: Sequence[dict[str, str]]) -> tuple[str, ...]:
    """Return a sentence for each thing in which the offer lies outside of the points of its GPU and framework family."""
    return tuple(_sentences(offered, rows))


def _sentences(offered: Offered, rows: Sequence[dict[str, str]]) -> Iterator[str]:
    yield from _software(rows)
    kin = [row for row in rows if is_kin(row)]
    own = of_gpu(kin, offered.gpu)
    where = f"on {generation(offered.gpu)}"
    if not own:
        yield (
            f"GPU type: no published measurement {where}; its constants follow from the data sheet and other GPUs, and the "
            "90 % interval is wider where no chip of its generation was fitted (docs/accuracy.md)"
        )
        own, where = kin, "on any GPU"
    for column, name in RANGES.items():
        if column in ("vpp", "cp") and offered.numbers[column] == 1:
            continue  # not used, which publications do not always say
        known = [value for row in own if (value := number(row, column)) is not None]
        if not known:
            yield f"{name}: not published {where}"
        elif not min(known) <= offered.numbers[column] <= max(known):
            yield f"{name}: {offered.numbers[column]:g}, measured {where} are {min(known):g} to {max(known):g}"
    yield from _spanning(offered, own, where)
    if not any(offered.precision in (row.get("precision") or "") for row in own):
        yield f"number format: {offered.precision}, which no measurement {where} has"


def _spanning(offered: Offered, own: Sequence[dict[str, str]], where: str) -> Iterator[str]:
    """Look for tensor-parallel groups over several nodes, which a network slows: one has to have been measured."""
    if offered.numbers["tp"] <= offered.numbers["gpus_per_node"]:
        return
    pairs = [(number(row, "tp") or 0, number(row, "gpus_per_node") or 0) for row in own]
    count = sum(tensor > gpus > 0 for tensor, gpus in pairs)
    if count < 3:
        yield f"tensor-parallel group over several nodes: {count} measurements {where} have one"


def _software(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """No published point is of this trainer; software alone moved identical configurations by 3 % (median) to 19 %."""
    frameworks = sorted({row["framework"] for row in rows if is_kin(row) and row.get("framework")})
    yield (
        "software: the measurements are of other trainers on the same libraries "
        f"({', '.join(frameworks) or 'none of this family'}); identical published configurations differ by 3 % in the "
        "median and 19 % at most between software versions, dates and sites"
    )
