"""A system file, or a GPU's name in any spelling, as the planner's machine: data sheets from benchmark/accelerators.toml."""

import re
from collections.abc import Iterable
from typing import Any

from nlp_bench.config.accelerators import SHARED, TABLE, Accelerator, deviations, entry_of, is_same, named_table
from nlp_bench.config.system import FABRICS, System
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import GENERATIONS, Machines, struct
from nlp_bench.plan.constants import Constants, Measured, own_file

_POWER = re.compile(r"(?<![0-9])(\d{3,4}) ?W\b", re.IGNORECASE)
_CLOCK_OF_POWER = 0.4
"""Clock falls with the power limit to about this power: dynamic power is frequency x voltage^2, and voltage falls with frequency."""
_SAME_SHEET = 0.05
"""Relative difference of memory or peak that is still the same data sheet: a GiB more or less, a clock that is rounded differently."""
_LINES = """  [[accelerator]]
  name = "VENDOR NAME"
  family = "NAME"
  logged = ["NAME AS THE DRIVER PRINTS IT"]
  peak_tflops = { bf16 = 0, fp16 = 0, fp8 = 0 }   # dense
  generation = "other"                            # or ampere, hopper, blackwell: whose efficiencies it has
  memory = [{ gib = 0, gb_per_s = 0 }]
  link_gb_per_s = 0                               # one direction
  source = "DATA SHEET\""""


@immutable
class Sheet:
    """What the planner takes from a data sheet, in base units, one direction."""

    name: str
    generation: str  # one of GENERATIONS
    half_flops: float  # FLOP/s in bf16 (or fp16): attention and the output layer are not done in fewer bits
    peak_flops: float  # FLOP/s in the number format of the products
    memory_bytes_per_s: float
    memory_gib: float
    link_bytes_per_s: float
    domain: int | None
    """GPUs that NVLink joins: more than a node's where a rack is one domain, fewer where bridges join pairs; None: those of a node."""


def sheet_of(words: str, precision: str, memory_gib: float | None = None) -> Sheet:
    """Return the data sheet of the GPU that `words` name, with the memory size nearest to `memory_gib`.

    "500W" in the words is a power limit below the data sheet's. Raises UsageError, with the lines to add, for a GPU that the table
    does not have or of which it does not say how fast its memory and links are.
    """
    entry = _entry(words)
    if not entry.memory or entry.link_gb_per_s is None or not entry.generation:
        missing = "generation, memory and link_gb_per_s"
        raise UsageError(f"{TABLE}: {entry.name} has no {missing}, which planning needs; add them:\n{_LINES}")
    memory = min(entry.memory, key=lambda one: abs(one.gib - (memory_gib or one.gib)))
    limit, clock = _POWER.search(words), 1.0
    if limit and entry.watts and float(limit[1]) < entry.watts:
        clock = float((float(limit[1]) / entry.watts) ** _CLOCK_OF_POWER)
    return Sheet(
        name=entry.name,
        generation=entry.generation,
        half_flops=clock * _peak(entry, precision if precision in {"fp32", "fp16"} else "bf16"),
        peak_flops=clock * _peak(entry, SHARED.get(precision, precision)),
        memory_bytes_per_s=memory.gb_per_s * 1e9,
        memory_gib=memory.gib,
        link_bytes_per_s=entry.link_gb_per_s * 1e9,
        domain=entry.domain,
    )


def _entry(words: str) -> Accelerator:
    try:
        return entry_of(words)
    except UsageError:
        raise UsageError(
            f"{words[:80]!r} is not in {named_table()}, so that nothing can be predicted for it; describe it from its data sheet:\n{_LINES}"
        ) from None


def _peak(entry: Accelerator, number_format: str) -> float:
    peaks = entry.peak_tflops
    if (value := peaks.get(number_format)) is None:
        raise UsageError(
            f"{TABLE} has no {number_format} peak for {entry.name}, only {', '.join(peaks)}; "
            f"plan --precision {_usual(entry)}, or {_usual(entry)} in the column precision of the points"
        )
    return value * 1e12


def _usual(entry: Accelerator) -> str:
    """Return the number format that a GPU trains in as a rule: fp16 where it has no bf16."""
    return next((one for one in ("bf16", "fp16") if one in entry.peak_tflops), "fp32")


def against_sheet(sheet: Sheet, memory_gib: float, peak_bf16_tflops: float) -> tuple[str, ...]:
    """Return where a system file is more than 5 % off its GPU's data sheet, and which of the two is used."""
    ratio = peak_bf16_tflops * 1e12 / sheet.peak_flops
    guesses = (
        (1.8, 2.2, "; is it the sparse one?"),
        (0.0, 0.01, "; write it in TFLOP/s"),
        (100.0, float("inf"), "; write it in TFLOP/s"),
    )
    guess = next((text for low, high, text in guesses if low <= ratio <= high), "")
    peak = f"the prediction takes the data sheet's{guess}"
    return tuple(
        f"system.gpu.{key}: {value:g}, but {sheet.name} has {known:g} in {TABLE}; {taken}"
        for key, value, known, taken in (
            ("memory_gib", memory_gib, sheet.memory_gib, "the prediction believes the system file"),
            ("peak_bf16_tflops", peak_bf16_tflops, sheet.peak_flops / 1e12, peak),
        )
        if abs(value / known - 1) > _SAME_SHEET
    )


def doubts_of(system: System, constants: Constants) -> tuple[str, ...]:
    """Return where a system file contradicts its GPU's data sheet, where that or plan.toml is not the shipped one, and whose the constants are.

    A measured GPU has none. Raises UsageError for a GPU that the table does not have.
    """
    gpu = system.gpu
    if gpu is None or _measured(system, constants):
        return ()
    sheet = sheet_of(gpu.name, _usual(_entry(gpu.name)), gpu.memory_gib)
    found = against_sheet(sheet, gpu.memory_gib, gpu.peak_bf16_tflops)
    return (*found, *measured_elsewhere(constants, [gpu.name]), *deviations(sheet.name), *own_file())


def measured_elsewhere(constants: Constants, names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each of the GPUs `names`, in any spelling, on which the constants of a user's own file were not measured."""
    theirs = constants.learned_on or (constants.machine.name if constants.machine else None)
    return tuple(
        f"the constants were measured on {theirs}, not on {name}: neither they nor the interval hold for it; plan without --constants"
        for name in names
        if theirs and not is_same(theirs, name)
    )


def _measured(system: System, constants: Constants) -> Measured | None:
    """Return what `nlp-bench plan calibrate` measured of the system's GPU, or of its CPU where it has no GPU."""
    measured, gpu = constants.machine, system.gpu
    return measured if measured is not None and (gpu is None or is_same(measured.name, gpu.name)) else None


def machine_of(system: System, constants: Constants, precision: str) -> Machines:
    """Return the machine that a system file describes, every field a number (arrays of shape []).

    What `nlp-bench plan calibrate` measured (table [machine] of a constants file) replaces the data sheet where its name is
    the GPU's, or where the system is a CPU's. Raises UsageError for a GPU that neither knows, a system without [gpu], and one whose
    [network] has no bandwidth; the message says what to write.
    """
    if not isinstance(system.gpus_per_node, int):
        raise UsageError(
            f'system.gpus_per_node: {system.name} says "auto", which is counted where the job runs; planning needs a number: --gpus-per-node N'
        )
    measured, gpu = _measured(system, constants), system.gpu
    if measured is not None:
        _refuse_above_sheet(measured)
        sheet, gib = measured_sheet(measured, precision), measured.memory_gib
    elif gpu is not None:
        sheet, gib = sheet_of(gpu.name, precision, gpu.memory_gib), gpu.memory_gib
    else:
        raise UsageError(
            f"system.gpu: {system.name} has no [gpu], so that there is no data sheet to plan with; measure the machine: "
            "nlp-bench plan calibrate --output cpu.toml, then --constants cpu.toml"
        )
    rate = _fabric(system, sheet.link_bytes_per_s if gpu is None else None)
    return struct(Machines, machine_numbers(sheet, system.gpus_per_node, gib, rate, system.network.fabric))


def measured_sheet(measured: Measured, precision: str) -> Sheet:
    """Return what `nlp-bench plan calibrate` measured, in place of a data sheet. Raises UsageError for a number format that it did not."""
    peaks, peak = measured.peak_tflops, measured.peak_tflops.get(precision)
    if peak is None:
        raise UsageError(
            f"[machine] {measured.name}: {precision} was not measured, only {', '.join(peaks)}; calibrate with --precision {precision}"
        )
    return Sheet(
        name=measured.name,
        generation="other",
        half_flops=1e12 * (peak if precision == "fp32" else peaks.get("bf16", peaks.get("fp16", peak))),
        peak_flops=1e12 * peak,
        memory_bytes_per_s=measured.memory_gb_per_s * 1e9,
        memory_gib=measured.memory_gib,
        link_bytes_per_s=measured.link_gb_per_s * 1e9,
        domain=None,
    )


def machine_numbers(
    sheet: Sheet, gpus_per_node: float, memory_gib: float, fabric_bytes_per_s: float, fabric: str
) -> dict[str, Any]:
    """Return the fields of Machines for GPUs of this data sheet, in nodes that a fabric of this kind (FABRICS) joins."""
    return vars(sheet) | {
        "gpu": GENERATIONS.index(sheet.generation),
        "gpus_per_node": gpus_per_node,
        "domain": float(sheet.domain or gpus_per_node),
        "memory_bytes": memory_gib * 2**30,
        "fabric_bytes_per_s": fabric_bytes_per_s,
        "fabric": FABRICS.index(fabric),
    }


_MOST_OF_SHEET = 1.2  # measured peak over the data sheet's, which some state at a lower clock than they hold


def _refuse_above_sheet(measured: Measured) -> None:
    """Raise UsageError for a measured peak that the GPU cannot have by its data sheet, where the table has one."""
    for precision, peak in measured.peak_tflops.items():
        try:
            known = sheet_of(measured.name, precision).peak_flops / 1e12
        except UsageError:  # no such GPU, or no such number format
            continue
        if peak > _MOST_OF_SHEET * known:
            raise UsageError(
                f"[machine] peak_tflops.{precision} = {peak:g}: {measured.name} has {known:g} TFLOP/s by its data sheet ({TABLE}); no product "
                "is that much faster, so correct the file of constants or measure again (nlp-bench plan calibrate)"
            )


def _fabric(system: System, otherwise: float | None) -> float:
    """Return bytes per second of a node's adapters."""
    network = system.network
    if network.links_per_node and network.link_gbit_per_s:
        return network.links_per_node * network.link_gbit_per_s * 1e9 / 8
    if otherwise is not None:
        return otherwise
    raise UsageError(
        f"system.network: {system.name} has no bandwidth; planning needs both lines: [network] links_per_node = ADAPTERS OF A NODE, "
        "link_gbit_per_s = RATE OF ONE IN ONE DIRECTION (of a machine of one node, too: no time but the interval depends on it)"
    )
