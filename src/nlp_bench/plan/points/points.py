"""Published points as configurations: the configuration columns of a table, never what was measured."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.plan.configurations import Configurations, Flags, Machines, Network, Spread
from nlp_bench.plan.constants import GENERATIONS, Constants
from nlp_bench.plan.frameworks import is_known, published_as
from nlp_bench.plan.machines import domain_of
from nlp_bench.plan.network import VOCAB_MULTIPLE
from nlp_bench.plan.points.beyond import COLUMNS, check_known
from nlp_bench.plan.points.cells import cell, precision_of, told_memory, year_of, yes
from nlp_bench.plan.points.spread import spread_of
from nlp_bench.plan.points.unstated import completed
from nlp_bench.plan.sheets import sheet_of

REQUIRED = (
    "id",
    "layers",
    "hidden",
    "heads",
    "ffn",
    "vocab",
    "seq",
    "gpu",
    "n_gpus",
    "tp",
    "pp",
    "mbs",
    "gbs",
    "precision",
)
"""Columns that a table must have; their cells may be blank, and then the row has no prediction unless a rule fills it."""
OPTIONAL = (
    "kv_heads", "gated_mlp", "gpu_mem_gb", "gpus_per_node", "internode_gbps_per_node", "vpp", "cp", "dp", "recompute",
    "sequence_parallel", "distributed_optimizer", "sharding", "framework", "software_version", *COLUMNS,
)  # fmt: skip
"""Columns that are read where they are, the last of them to refuse what is not modelled; nothing else is."""
_GBIT_PER_GPU = {"ampere": 200.0, "other": 200.0}
"""Adapters of the reference designs (DGX A100: 200 Gbit/s for each GPU; DGX H100, GB200 NVL72: 400), where a row does not say."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """Rows that can be predicted, and why the others cannot."""

    configurations: Configurations
    """N configurations."""
    ids: tuple[str, ...]
    """Their rows' ids."""
    unknown: Flags
    """Whether their framework is none that the constants know, so that they are predicted as another; shape [N]."""
    all_ids: tuple[str, ...]
    """Ids of all rows in the order of the table."""
    refused: dict[str, str]
    """Id to the reason."""


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """Return the configuration columns of a table; raises UsageError that names missing columns or a repeated id."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as stream:
            table = csv.DictReader(stream)
            missing = [name for name in REQUIRED if name not in (table.fieldnames or ())]
            if missing:
                raise UsageError(
                    f"{path}: no column {', '.join(missing)}; a table of points needs {', '.join(REQUIRED)}"
                )
            rows = [{name: (row.get(name) or "").strip() for name in (*REQUIRED, *OPTIONAL)} for row in table]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not a table of comma-separated values in UTF-8: {error}") from error
    ids = [row["id"] for row in rows]
    if twice := sorted({one for one in ids if ids.count(one) > 1}):
        raise UsageError(f"{path}: id {twice[0]!r} stands in {ids.count(twice[0])} rows; ids are unique")
    if odd := [one for one in ids if not one.isprintable()]:
        raise UsageError(f"{path}: id {odd[0][:40]!r} has a character that a terminal does not print")
    return rows


def points_of(rows: Sequence[Mapping[str, str]], constants: Constants) -> Points:
    """Return the configurations of rows; a row that no rule completes is refused with the reason."""
    found, refused = [], {}
    for row in rows:
        numbers = _numbers_or_reason(row, constants)
        if isinstance(numbers, str):
            refused[row["id"]] = numbers
        else:
            found.append((row["id"], numbers))
    stacked = _stacked([numbers for _, numbers in found])
    return Points(
        configurations=completed(
            stacked,
            np.array([not row["recompute"] for row in rows if row["id"] not in refused], dtype=np.bool_),
            constants,
        ),
        ids=tuple(one for one, _ in found),
        unknown=np.array(
            [not is_known(constants.traits, row["framework"]) for row in rows if row["id"] not in refused],
            dtype=np.bool_,
        ),
        all_ids=tuple(row["id"] for row in rows),
        refused=refused,
    )


def _numbers_or_reason(row: Mapping[str, str], constants: Constants) -> dict[str, Any] | str:
    try:
        return _numbers(row, constants)
    except NlpBenchError as error:
        return str(error)


def _numbers(row: Mapping[str, str], constants: Constants) -> dict[str, Any]:
    """Return every field of one configuration as a plain number."""
    precision = precision_of(row["precision"])
    check_known(row)
    model, machine = _model(row), _machine(row, precision)
    generation = GENERATIONS[machine["gpu"]]
    place = published_as(
        constants.traits, row["framework"], year_of(row["software_version"]), row["sharding"], generation
    )
    if constants.traits[place].slow_gathers and "3" not in row["sharding"]:  # DeepSpeed without ZeRO-3
        place = constants.frameworks.index("Megatron-DeepSpeed")
    trait = constants.traits[place]
    return {
        **model,
        **machine,
        **spread_of(row, trait, model, machine),
        "framework": place,
        "precision": constants.precisions.index(precision),
    }


def _model(row: Mapping[str, str]) -> dict[str, Any]:
    heads, hidden, seq = cell(row, "heads"), cell(row, "hidden"), cell(row, "seq")
    gated = yes(row, "gated_mlp", otherwise=False)
    return {
        "num_layers": cell(row, "layers"),
        "hidden_size": hidden,
        "ffn_hidden_size": cell(row, "ffn"),
        "num_attention_heads": heads,
        "num_query_groups": cell(row, "kv_heads", heads),
        "head_width": hidden / heads,
        "vocab_size": cell(row, "vocab"),
        "vocab_multiple": float(VOCAB_MULTIPLE),
        "sequence_length": seq,
        "gated": gated,
        "untied_embeddings": gated,
        "linear_biases": not gated,
        "norm_biases": not gated,
        "num_learned_positions": 0.0 if gated else seq,
    }


def _machine(row: Mapping[str, str], precision: str) -> dict[str, Any]:
    if not row["gpu"]:
        raise UsageError("gpu is blank, and no rule fills it")
    memory = cell(row, "gpu_mem_gb", 0.0)
    sheet = sheet_of(row["gpu"], precision, memory or told_memory(row["gpu"]))
    per_node = cell(row, "gpus_per_node", 4.0 if sheet.domain == 72 or "GH200" in sheet.name else 8.0)
    gbit = cell(row, "internode_gbps_per_node", per_node * _GBIT_PER_GPU.get(sheet.generation, 400.0))
    return {
        "gpu": GENERATIONS.index(sheet.generation),
        "gpus_per_node": per_node,
        "domain": domain_of(sheet, per_node),
        "peak_flops": sheet.peak_flops,
        "half_flops": sheet.half_flops,
        "memory_bytes_per_s": sheet.memory_bytes_per_s,
        "link_bytes_per_s": sheet.link_bytes_per_s,
        "fabric_bytes_per_s": gbit * 1e9 / 8,
        "memory_bytes": (memory or told_memory(row["gpu"]) or sheet.memory_gib) * 2**30,
    }


def _stacked(rows: Sequence[Mapping[str, Any]]) -> Configurations:
    """Return the rows as one struct of arrays; fields that no row has keep their defaults."""

    def part(kind: Any) -> Any:
        names = [one.name for one in fields(kind) if one.name not in _DEFAULTED]
        return kind(**{name: _column(rows, name) for name in names})

    return Configurations(
        network=part(Network),
        spread=part(Spread),
        machines=part(Machines),
        framework=_column(rows, "framework"),
        precision=_column(rows, "precision"),
    )


_DEFAULTED = ("dropout",)
_FLAGS = (
    "gated",
    "untied_embeddings",
    "linear_biases",
    "norm_biases",
    "sequence_parallel",
    "overlap_grad_reduce",
    "overlap_param_gather",
)
_CODES = ("gpu", "recompute", "sharding", "framework", "precision")


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    kind = np.bool_ if name in _FLAGS else np.int64 if name in _CODES else np.float64
    return np.array([row[name] for row in rows], dtype=kind)
