"""Predictions of a table of published points: configuration columns in, seconds with their interval and memory out."""

import csv
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from nlp_bench.config.system import FABRICS, MEMORY_GIB
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line
from nlp_bench.files import open_for_reading
from nlp_bench.immutable import immutable
from nlp_bench.layout.rules import RECOMPUTE, RULES, SHARDING, VIRTUAL, Sizes, multiple, refuse
from nlp_bench.plan.configurations import (
    GENERATIONS,
    PRECISIONS,
    Configurations,
    Flags,
    Framework,
    Machines,
    Network,
    Spread,
    struct,
)
from nlp_bench.plan.constants import Constants, precision_of
from nlp_bench.plan.forecast import forecast, peak_memory
from nlp_bench.plan.machines import machine_numbers, sheet_of
from nlp_bench.plan.problem import VOCAB_MULTIPLE

T = TypeVar("T")


def year_of(version: str) -> float | None:
    """Return the year, with its fraction, of a software version: 2022-02-25, 25.04, MLPerf v3.1; None where it has none."""
    if found := re.search(r"MLPerf v(\d)\.(\d)", version):  # v3.0 was June 2023, two rounds a year
        return 2020.4 + float(found[1]) + 0.5 * float(found[2])
    if found := re.search(r"(20\d\d)-(\d\d)", version):
        return float(found[1]) + (float(found[2]) - 0.5) / 12
    if found := re.search(r"(?<!\d)(20\d\d)", version):
        return float(found[1]) + 0.5
    if found := re.search(r"(?<![\d.])(2\d)\.(0[1-9]|1[0-2])\b", version):
        return 2000 + float(found[1]) + (float(found[2]) - 0.5) / 12
    return None


def cell(row: Mapping[str, str], name: str, otherwise: float | None = None) -> float:
    """Return a number above 0 of a row; raises UsageError for a blank without a rule, or a word."""
    text = row[name]
    if not text:
        if otherwise is None:
            raise UsageError(f"{name} is blank, and no rule fills it")
        return otherwise
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise UsageError(f"{name} = {text[:40]!r} is not a number above 0")
    if name not in _MEASURES and (value % 1 or value > _MOST):
        raise UsageError(f"{name} = {text[:40]!r} is not a whole number up to {_MOST:.0e}")
    return value


_MEASURES = ("gpu_mem_gb", "internode_gbps_per_node", "params_b")  # columns that may hold fractions
_MOST = 1e9


_TRUE, _FALSE = ("1", "1.0", "true", "yes", "on", "y", "t"), ("0", "0.0", "false", "no", "off", "n", "f")
_SWITCHES = ("gated_mlp", "sequence_parallel", "distributed_optimizer")


def yes(row: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    """Return whether a cell is true; a blank is `otherwise`. Raises UsageError for a word that is neither true nor false."""
    word = row[name].lower()
    if word and word not in {*_TRUE, *_FALSE}:
        raise UsageError(f"{name} = {row[name][:40]!r} is neither yes (1, true, on) nor no (0, false, off)")
    return word in _TRUE if word else otherwise


def _recompute(row: Mapping[str, str]) -> int:
    """Return the place in RECOMPUTE that a cell names, the most of several; a blank is none. Raises UsageError for another word."""
    word = row["recompute"].lower()
    named = [place for place, known in enumerate(RECOMPUTE) if known in re.findall(r"[a-z]+", word)]
    if not named and word and word not in _FALSE:
        raise UsageError(f"recompute = {row['recompute'][:40]!r} is none of {', '.join(RECOMPUTE)}")
    return max(named, default=RECOMPUTE.index("none"))


EXPERTS = ("num_experts", "topk", "expert_ffn", "shared_expert_ffn")
REFUSED_COLUMNS = ("ep", *EXPERTS, "dense_layers", "head_dim", "attention", "sliding_window")
"""Columns that are read only to refuse what is not predicted."""
_PLAIN_ATTENTION = ("mha", "gqa", "mqa")  # kinds of attention that `kv_heads` describes

_NONE = ("", "0", "1")  # cells that mean none


def check_known(row: Mapping[str, str]) -> None:
    """Raise UsageError, naming the column, for a model or a layout that nothing here can predict or that cannot exist."""
    experts = "a mixture of experts is not predicted, only models in which every token sees every weight"
    unknown = {
        **dict.fromkeys(EXPERTS, experts),
        "ep": "expert parallelism is not predicted, only dense models (ep blank or 1)",
    }
    for name, why in unknown.items():
        if row[name] not in _NONE:
            raise UsageError(f"{name} = {row[name][:40]!r}: {why}")
    if row["attention"] and row["attention"].lower() not in _PLAIN_ATTENTION:
        raise UsageError(
            f"attention = {row['attention'][:40]!r} is not predicted: only heads with keys and values of their own "
            f"(blank, or {', '.join(_PLAIN_ATTENTION)}; kv_heads says how many)"
        )
    seq = cell(row, "seq")
    if row["sliding_window"] not in {"", "0"} and cell(row, "sliding_window") < seq:
        window = f"sliding_window = {row['sliding_window'][:40]!r} below seq = {seq:g}"
        raise UsageError(f"{window} is not predicted: attention is counted over the whole sequence")
    for name in _SWITCHES:
        yes(row, name, otherwise=False)
    hidden, heads = int(cell(row, "hidden")), int(cell(row, "heads"))
    for what, of in (("hidden", "heads"), ("heads", "kv_heads")):
        number, divisor = int(cell(row, what)), int(cell(row, of, heads))
        if number % divisor:
            raise UsageError(multiple(what, number, of, divisor))
    width = cell(row, "head_dim", hidden / heads)
    if width != hidden / heads:
        said = f"head_dim = {width:g} is not hidden / heads = {hidden / heads:g}"
        raise UsageError(f"{said}: heads of another width are not predicted")


_STATE_BYTES = 18.0  # of a parameter in mixed precision with Adam: weights 2, gradients 4, fp32 state 12


def spread_of(
    row: Mapping[str, str], trait: Framework, model: Mapping[str, Any], machine: Mapping[str, Any]
) -> dict[str, Any]:
    """Return every field of a Spread; blank cells follow the rules of the framework's documentation."""
    gpus, tensor, pipeline = cell(row, "n_gpus"), cell(row, "tp"), cell(row, "pp")
    context = cell(row, "cp", 1.0)
    data = gpus / (tensor * pipeline * context)
    batch = cell(row, "gbs")
    micro = min(cell(row, "mbs", 1.0), max(batch / data, 1e-9))
    virtual = _virtual(row, trait, model, pipeline, batch / (data * micro))
    sharding, group = _sharding(row, trait, {**model, **machine}, data * context, pipeline)
    # Embedding and output layer count as a layer each in Llama 3.1's 126 layers and BLOOM's 70, which are two fewer than their
    # chunks (arXiv 2407.21783, section 3.3.2; arXiv 2211.05100).
    layers, chunks = model["num_layers"], pipeline * virtual
    fewer = pipeline > 1 and layers % chunks and (layers + 2) % chunks == 0
    ends = (layers + 2) / pipeline - 1 if fewer else 0.0
    return {
        "num_gpus": gpus,
        "tensor": tensor,
        "pipeline": pipeline,
        "virtual": virtual,
        "context": context,
        "data": data,
        "micro_batch_size": micro,
        "global_batch_size": batch,
        "first_layers": ends,
        "last_layers": ends,
        "recompute": _recompute(row),
        "sequence_parallel": tensor > 1 and yes(row, "sequence_parallel", otherwise=trait.tensor_overlap),
        "sharding": SHARDING.index(sharding),
        "shard_group": group,
        "overlap_grad_reduce": trait.overlap,
        "overlap_param_gather": trait.overlap,
    }


def _virtual(
    row: Mapping[str, str], trait: Framework, model: Mapping[str, Any], pipeline: float, micro: float
) -> float:
    """Return the virtual stages; where blank, one unless the framework's documentation gives each layer a chunk."""
    if row["vpp"] or pipeline == 1 or not trait.one_per_chunk or micro % pipeline:
        return cell(row, "vpp", 1.0) if pipeline > 1 else 1.0
    layers = model["num_layers"]
    return float(next((n // pipeline for n in (layers, layers + 2) if n % pipeline == 0), 1.0))


def _sharding(
    row: Mapping[str, str], trait: Framework, sizes: Mapping[str, Any], ranks: float, pipeline: float
) -> tuple[str, float]:
    """Return what is sharded and over how many ranks, from the words of the column, else from the framework's defaults."""
    words, stated = _sharding_words(row["sharding"])
    group = min(float(stated or ranks), ranks)
    if stated is None and "hsdp" in words:
        group = min(sizes["gpus_per_node"], ranks)  # torch's HYBRID_SHARD: shards within a node, copies between nodes
    elif stated is None and {"fsdp", "dp"} <= words:
        group = _enough(sizes, ranks)
    kinds = {_KINDS[word] for word in words}
    # with a pipeline parameters stay gathered from the first forward to the last backward
    if "gradients" in kinds or ("parameters" in kinds and pipeline > 1):
        return "gradients", group
    if "parameters" in kinds or (trait.family in {"eager", "xla"} and not words):
        return "parameters", group
    optimizer = yes(row, "distributed_optimizer", otherwise="optimizer" in kinds or trait.family == "nvidia")
    return ("optimizer", group) if optimizer else ("none", 1.0)


_KINDS = {
    "none": "none", "ddp": "none", "dp": "none",
    "zero-1": "optimizer", "zero1": "optimizer", "zero-2": "gradients", "zero2": "gradients", "shard_grad_op": "gradients",
    "zero-3": "parameters", "zero3": "parameters", "fsdp": "parameters", "fsdp2": "parameters", "hsdp": "parameters",
    "full_shard": "parameters", "hybrid_shard": "parameters",
}  # fmt: skip
"""Words of the column `sharding`, and what they shard; a number after = or "over" is the size of the group."""
_FULL = {word for word, kind in _KINDS.items() if kind == "parameters"}


def _sharding_words(text: str) -> tuple[set[str], str | None]:
    """Return the known words of a cell and the group size that it states; raises UsageError for any other word."""
    plain = re.sub(r"over all[- ]?dp\b", "", text.lower())
    group = re.search(r"(?:=|\bover) ?(\d+)\b", plain)
    words = set(re.findall(r"[^\s+,/]+", plain.replace(group[0], " ") if group else plain))
    if unknown := sorted(words - set(_KINDS)):
        raise UsageError(
            f'sharding = {text[:40]!r}: unknown word {unknown[0]!r}; known are {", ".join(_KINDS)}, each with =N or "over N" '
            "for groups of N ranks"
        )
    return ({"hsdp"} if "hybrid_shard" in words else set()) | words, group[1] if group else None


def _enough(sizes: Mapping[str, Any], ranks: float) -> float:
    """Return the smallest power of two of nodes whose half memory holds the state, in ranks."""
    layers, table = _weights(sizes)
    state = _STATE_BYTES * (layers + table)
    group = sizes["gpus_per_node"]
    while group < ranks and state / group > 0.5 * sizes["memory_bytes"]:
        group *= 2
    return float(min(group, ranks))


_SURELY_TOO_MUCH = 1.3  # of a GPU's memory: above it none can have run, well beyond what the memory model errs by
_OFFLOADS = ("nvidia", "xla")
"""Families whose recipes move activations to the host or choose operators to compute again, which no row states."""


def completed(c: Configurations, unstated: np.ndarray[Any, np.dtype[np.bool_]], constants: Constants) -> Configurations:
    """Return the configurations with full recompute where none is stated and the peak without it is far above the GPU's memory."""
    unknown = unstated & ~np.isin(constants.trait("family"), _OFFLOADS)[c.framework]
    if not unknown.any():
        return c
    places = np.flatnonzero(unknown)
    some = c.take(places)
    memory = peak_memory(some, constants)
    recompute = c.spread.recompute.copy()
    recompute[places[memory.total > _SURELY_TOO_MUCH * memory.capacity]] = RECOMPUTE.index("full")
    return replace(c, spread=replace(c.spread, recompute=recompute))


REQUIRED = (
    "id", "layers", "hidden", "heads", "ffn", "vocab", "seq", "gpu", "n_gpus", "tp", "pp", "mbs", "gbs", "precision",
)  # fmt: skip
"""Columns that a table must have; their cells may be blank, and then the row has no prediction unless a rule fills it."""
OPTIONAL = (
    "kv_heads", "gated_mlp", "gpu_mem_gb", "gpus_per_node", "internode_gbps_per_node", "fabric", "vpp", "cp", "dp", "recompute",
    "sequence_parallel", "distributed_optimizer", "sharding", "framework", "software_version", "params_b", *REFUSED_COLUMNS,
)  # fmt: skip
"""Optional columns, the last of them read to refuse what is not modelled; others are ignored, and named."""
BESIDE = (
    "source_id", "grade", "model", "metric", "value", "unit", "status", "peak_mem_gb", "iter_time_s", "tokens_per_s_per_gpu", "source",
    "looked_at",
)  # fmt: skip
"""Columns of published tables that are no configuration."""
_GBIT_PER_GPU = {"ampere": 200.0, "other": 200.0}
"""Adapters of the reference designs (DGX A100: 200 Gbit/s for each GPU; DGX H100, GB200 NVL72: 400), where a row does not say."""


@immutable
class Points:
    """Rows that can be predicted, and why the others cannot."""

    configurations: Configurations
    ids: tuple[str, ...]  # their rows' ids
    unknown: Flags  # whether the constants do not know their framework and predict them as another; shape [N]
    refused: dict[str, str]  # id to the reason


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """Return the configuration columns of a table; raises UsageError that names missing columns or a repeated id."""
    try:
        raw = cast("io.RawIOBase", open_for_reading(Path(path)))
        with io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8-sig", newline="") as stream:
            table = csv.DictReader(stream)
            _check_header(list(table.fieldnames or ()), path)
            rows = [_cells_of(row, path, table.line_num) for row in table if any(row.values())]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a file of comma-separated values") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not a table of comma-separated values in UTF-8: {error}") from error
    ids = [row["id"] for row in rows]
    if twice := sorted({one for one in ids if ids.count(one) > 1}):
        raise UsageError(f"{path}: id {twice[0]!r} stands in {ids.count(twice[0])} rows; ids are unique")
    if odd := [one for one in ids if not one.isprintable()]:
        raise UsageError(f"{path}: id {odd[0][:40]!r} has a character that a terminal does not print")
    return rows


def _check_header(header: Sequence[str], path: str | Path) -> None:
    """Raise UsageError for a header that lacks a column, has one twice, or is not divided by commas."""
    for sign, word in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and sign in header[0]:
            raise UsageError(f"{path}: its columns are divided by {word}; save the table with commas between them")
    known = (*REQUIRED, *OPTIONAL)
    if missing := [name for name in REQUIRED if name not in header]:
        raise UsageError(f"{path}: no column {', '.join(missing)}; a table of points needs {', '.join(REQUIRED)}")
    if twice := [name for name in known if header.count(name) > 1]:
        times = header.count(twice[0])
        raise UsageError(f"{path}: column {twice[0]} stands {times} times in the header; leave one of them")
    if others := [name for name in header if name.strip() and name not in {*known, *BESIDE}]:
        print(f"nlp-bench: {path}: columns that are not read: {one_line(', '.join(others))}", file=sys.stderr)


def _cells_of(row: Mapping[Any, Any], path: str | Path, line: int) -> dict[str, str]:
    """Return the cells of a row that are read; raises UsageError for one that is longer than the header, for its cells may be displaced."""
    if None in row:
        raise UsageError(
            f"{path}, line {line}: {len(row[None])} more cell(s) than the header has columns; put a cell with a comma into quotes"
        )
    return {name: (row.get(name) or "").strip() for name in (*REQUIRED, *OPTIONAL)}


def points_of(rows: Sequence[Mapping[str, str]], constants: Constants) -> Points:
    """Return the configurations of rows; a row that no rule completes is refused with the reason."""
    found, refused = [], {}
    for row in rows:
        numbers = or_reason(_numbers, row, constants)
        if isinstance(numbers, str):
            refused[row["id"]] = numbers
        else:
            found.append((row["id"], numbers))
    kept = [row for row in rows if row["id"] not in refused]
    unstated = np.array([not row["recompute"] for row in kept], dtype=np.bool_)
    known = [word for one in constants.traits for word in one.words]
    unknown = [not any(word in row["framework"].lower() for word in known) for row in kept]
    return Points(
        configurations=completed(_stacked([numbers for _, numbers in found]), unstated, constants),
        ids=tuple(one for one, _ in found),
        unknown=np.array(unknown, dtype=np.bool_),
        refused=refused,
    )


def or_reason(make: Callable[..., T], *arguments: Any) -> T | str:
    """Return what `make` returns, or the reason why it cannot."""
    try:
        return make(*arguments)
    except NlpBenchError as error:
        return str(error)


def _numbers(row: Mapping[str, str], constants: Constants) -> dict[str, Any]:
    precision = precision_of(row["precision"])
    check_known(row)
    model, machine = _model_numbers(row), _machine_numbers(row, precision)
    generation, year = GENERATIONS[machine["gpu"]], year_of(row["software_version"])
    words, _ = _sharding_words(row["sharding"])
    place = published_as(constants.traits, row["framework"], year, words, generation)
    if constants.traits[place].slow_gathers and not words & _FULL:  # DeepSpeed without ZeRO-3
        place = constants.frameworks.index("Megatron-DeepSpeed")
    spread = spread_of(row, constants.traits[place], model, machine)
    _check_parameters(row, model)
    _check_layout(row, constants.traits[place], {**model, **spread})
    return {**model, **machine, **spread, "framework": place, "precision": PRECISIONS.index(precision)}


_FOREIGN = ("sharding", "overlap")  # rules of this package's trainer alone
_COLUMN_OF = {
    "parallel": "n_gpus", "parallel.tensor": "tp", "parallel.pipeline": "pp", "parallel.context": "cp", "batch": "gbs", VIRTUAL: "vpp",
    "tuning.sequence_parallel": "sequence_parallel",
}  # fmt: skip
"""Field of run.json to the column of a table of points."""


def _check_layout(row: Mapping[str, str], trait: Framework, numbers: Mapping[str, Any]) -> None:
    """Raise UsageError, naming the column, for a layout that breaks a rule; embedding and output layer may count as a layer each (`spread_of`)."""
    known = {one.name: numbers[one.name] for one in fields(Sizes) if one.name in numbers}
    sizes = Sizes(**{name: value if isinstance(value, bool) else int(value) for name, value in known.items()})
    stated = {"micro_batch_size": int(cell(row, "mbs", 1.0)), "virtual": int(cell(row, "vpp", sizes.virtual))}
    sizes = replace(sizes, **stated)  # not as `spread_of` lowers them
    stages = ("pipeline stages", "virtual stages")
    uneven = trait.uneven_stages or numbers["first_layers"] > 0
    rules = tuple(rule for rule in RULES if rule.code not in (*_FOREIGN, *(stages if uneven else ())))
    refuse(sizes, rules, lambda field: _COLUMN_OF.get(field, field))
    if (data := cell(row, "dp", sizes.data)) != sizes.data:
        raise UsageError(f"dp = {data:g} is not n_gpus / (tp x pp x cp) = {sizes.num_gpus} / {sizes.ranks_per_replica}")


_SAME_SIZE = 0.1  # relative difference of a stated and a counted number of parameters that is still one model


def _check_parameters(row: Mapping[str, str], model: Mapping[str, Any]) -> None:
    """Raise UsageError where the stated number of parameters is not that of the shape, its output layer tied or not."""
    if not row["params_b"]:
        return
    stated, (layers, table) = cell(row, "params_b") * 1e9, _weights(model)
    least, most = layers + table, layers + 2 * table
    if not (1 - _SAME_SIZE) * least <= stated <= (1 + _SAME_SIZE) * most:
        counted = f"{least / 1e9:.4g} to {most / 1e9:.4g}"
        raise UsageError(
            f"params_b = {stated / 1e9:g}, but layers, hidden, heads, kv_heads, ffn, gated_mlp and vocab make {counted}"
        )


def _weights(model: Mapping[str, Any]) -> tuple[float, float]:
    """Return the entries of the matrices of all layers, and those of the embedding."""
    network = struct(Network, model)
    return float(network.num_layers * network.layer_weights), float(network.hidden_size * network.vocab_size)


def _model_numbers(row: Mapping[str, str]) -> dict[str, Any]:
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


def _machine_numbers(row: Mapping[str, str], precision: str) -> dict[str, Any]:
    if not row["gpu"]:
        raise UsageError("gpu is blank, and no rule fills it")
    named = re.search(r"(\d{2,3}) ?G", row["gpu"])
    said = float(named[1]) if named else 0.0
    if said > (1 + _SAME_MEMORY) * sheet_of(row["gpu"], precision, said).memory_gib:
        said = 0.0  # another memory: the 480 GB of a GH200 are its CPU's
    memory = cell(row, "gpu_mem_gb", said) or None
    sheet = sheet_of(row["gpu"], precision, memory)
    if row["gpu_mem_gb"] and memory:
        _check_memory(memory, said, row["gpu"])
    per_node = cell(row, "gpus_per_node", 4.0 if sheet.domain == 72 or "GH200" in sheet.name else 8.0)
    gbit = cell(row, "internode_gbps_per_node", per_node * _GBIT_PER_GPU.get(sheet.generation, 400.0))
    return machine_numbers(sheet, per_node, memory or sheet.memory_gib, gbit * 1e9 / 8, _fabric(row))


def _fabric(row: Mapping[str, str]) -> str:
    """Return the word of FABRICS in a cell; a blank is unknown. Raises UsageError for another word."""
    word = row["fabric"].lower() or "unknown"
    if word not in FABRICS:
        raise UsageError(f"fabric = {row['fabric'][:40]!r} is none of {', '.join(FABRICS)}")
    return word


_SAME_MEMORY = 0.1
"""Relative difference of two statements of one GPU's memory: in GB or GiB, with or without what the driver keeps."""


def _check_memory(memory: float, said: float, name: str) -> None:
    """Raise UsageError for a memory in MiB or bytes, and for one that contradicts the GPU's `name`, which says `said` (0: nothing)."""
    least, most = MEMORY_GIB
    if not least <= memory <= most:
        raise UsageError(f"gpu_mem_gb = {memory:.12g} is not within {least:g} to {most} GiB; write 80 for 80 GB")
    if said and abs(memory / said - 1) > _SAME_MEMORY:
        raise UsageError(f"gpu_mem_gb = {memory:g}, but gpu = {name[:40]!r} has {said:g}")


def _stacked(rows: Sequence[Mapping[str, Any]]) -> Configurations:
    """Return the rows as one struct of arrays."""
    known = (one.name for kind in (Network, Spread, Machines) for one in fields(kind))
    names = [name for name in known if all(name in row for row in rows)]  # no table states what has a default
    columns = {name: [row[name] for row in rows] for name in (*names, "framework", "precision")}
    return Configurations(
        network=struct(Network, columns),
        spread=struct(Spread, columns),
        machines=struct(Machines, columns),
        framework=np.array(columns["framework"], dtype=np.int64),
        precision=np.array(columns["precision"], dtype=np.int64),
    )


COLUMNS = ("id", "iter_time_s", "iter_time_s_lo90", "iter_time_s_hi90", "peak_mem_gb", "fits", "away", "refused")
"""away: how the row differs from the fitted rows, which widens its interval; refused: why nothing is predicted."""
_GB = 1e9


def predictions_of(
    rows: Sequence[Mapping[str, str]], constants: Constants
) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Predict the rows of a table of points: return one with COLUMNS for each of them, and by id why nothing is predicted."""
    points, blank = points_of(rows, constants), dict.fromkeys(COLUMNS, "")
    found = {one: {**blank, "id": one, "refused": " ".join(reason.split())} for one, reason in points.refused.items()}
    if points.ids:
        found |= _cells(points, constants)
    return [found[row["id"]] for row in rows], points.refused


def _cells(points: Points, constants: Constants) -> dict[str, dict[str, str]]:
    """Return cells by id."""
    found = forecast(points.configurations, constants, points.unknown)
    numbers = (found.seconds.total, found.low, found.high, found.memory.published / _GB)
    columns = [np.broadcast_to(values, (len(points.ids),)) for values in (*numbers, found.memory.words)]
    reach, c = constants.reach, points.configurations
    away = reach.reasons(c, constants.traits, points.unknown) if reach else [[] for _ in points.ids]
    rows = {}
    for one, said, *figures, word in zip(points.ids, away, *columns, strict=True):
        shown = [f"{float(figure):.6g}" if np.isfinite(figure) else "" for figure in figures]
        rows[one] = dict(zip(COLUMNS, (one, *shown, str(word), "; ".join(said), ""), strict=True))
    return rows


def published_as(traits: Sequence[Framework], name: str, year: float | None, words: set[str], generation: str) -> int:
    """Return the position of the entry that a published framework's name means.

    A name without an entry is taken for one of its family: full sharding for PyTorch's FSDP (or ZeRO-3, where its `words` say so), all else for
    Megatron-LM.
    """
    for place, one in enumerate(traits):
        dated = one.since > 0 or one.before < float("inf")  # what has no date is neither before nor since anything
        timely = one.since <= year < one.before if year is not None else not dated
        after = not one.after_ampere or generation not in {"ampere", "other"}
        if timely and after and any(word in name.lower() for word in one.words):
            return place
    names, is_zero = [one.name for one in traits], any(word.startswith("zero") for word in words)
    full = "DeepSpeed ZeRO-3" if is_zero else "PyTorch FSDP"
    return names.index(full if words & _FULL else "Megatron-LM")
