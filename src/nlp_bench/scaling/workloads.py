"""Which runs trained the same thing on the same machine: only these may share a curve or a ranking."""

from collections.abc import Sequence

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.workload import SHAPE, Setting, Value
from nlp_bench.show.escape import one_line

SPEED = (*SHAPE, "precision", "optimizer", "attention_dropout", "hidden_dropout")
"""Frozen settings that change the work of a step. The learning rate and its schedule do not; weak scaling changes them."""
MAX_CELL = 30
Key = tuple[tuple[str, Value], ...]


def known(entry: RunEntry) -> dict[str, Setting]:
    """Return what tells runs apart: run.json where there is one, since a run that failed early prints less than its neighbours."""
    return dict(entry.workload.asked or entry.workload.logged)


def workload_key(entry: RunEntry) -> Key:
    """Return what was trained and where, as far as it is known; different keys never share a curve.

    A published table is a curve of its own: its rates are not ours.
    """
    settings = known(entry)
    found: dict[str, Value] = {name: settings[name].value for name in SPEED if name in settings}
    if entry.sequence_length:
        found["seq_length"] = entry.sequence_length
    if not found.keys() & {"num_layers", "hidden_size"} and "num_parameters" in settings:
        found["num_parameters"] = settings["num_parameters"].value
    model = model_of(entry)
    machine = machine_of(entry)
    table = entry.published.table if entry.published else None
    dialect = None if says_model(entry) else entry.dialect  # two programs that name no model had hardly the same one
    words = {"model": model, "machine": machine, "table": table, "dialect": dialect}
    found.update({name: value for name, value in words.items() if value})
    return tuple(sorted(found.items()))


def model_of(entry: RunEntry) -> str | None:
    """Return the name of the model, None where nobody says it."""
    name = entry.model or entry.workload.value("model")
    return one_line(name) if name is not None else None


def machine_of(entry: RunEntry) -> str | None:
    """Return the name of the machine, or else of its device, None where nobody says it."""
    name = known(entry).get("system") or known(entry).get("gpu")
    device = "CPU" if device_of(entry) == "cpu" else None
    return one_line(name.value) if name else device


def device_of(entry: RunEntry) -> str | None:
    """Return cuda or cpu, None where nobody says it."""
    value = entry.accelerator or entry.workload.value("accelerator")
    return str(value) if value else None


def says_model(entry: RunEntry) -> bool:
    """Say whether name, shape or number of parameters tells which model was trained."""
    return model_of(entry) is not None or any(
        known(entry).get(name) for name in ("num_layers", "hidden_size", "num_parameters")
    )


def title(entry: RunEntry) -> str:
    """Return a heading for the runs that share the workload of `entry`."""
    model, machine = model_of(entry), machine_of(entry)
    layers, hidden = entry.workload.count("num_layers"), entry.workload.count("hidden_size")
    shape = f"model of {layers} layers, hidden size {hidden}" if layers and hidden else "unknown model"
    return f"{model or shape}{f' on {machine}' if machine else ''}"


def num_gpus_of(entry: RunEntry) -> int | None:
    """Return the GPUs (or CPU ranks) of a run, None where nobody says it."""
    return entry.num_gpus or entry.workload.count("world_size")


def batch_of(entry: RunEntry) -> int | None:
    """Return the samples per iteration, None where nobody says it."""
    return entry.global_batch_size or entry.workload.count("global_batch_size")


def cell(value: Value | None) -> str:
    """Return a setting as text for a table; missing is empty."""
    if value is None:
        return ""
    text = f"{value:g}" if isinstance(value, float) else one_line(value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 3] + "..."


def varying(
    settings: Sequence[dict[str, Setting]], names: Sequence[str], is_complete: Sequence[bool]
) -> tuple[str, ...]:
    """Return those of `names` whose value is not the same everywhere; what follows from others is left out.

    A value that is not stated is a value of its own only where the log `is_complete`: a run that failed early prints less.
    """
    found = []
    for name in names:
        values = {cell(each[name].value) for each in settings if name in each}
        missing = any(name not in each for each, complete in zip(settings, is_complete, strict=True) if complete)
        if len(values) + missing > 1:
            found.append(name)
    split = {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"} & set(found)
    implied = {"data_parallel_size"} if split else set()
    return tuple(name for name in found if name not in implied)
