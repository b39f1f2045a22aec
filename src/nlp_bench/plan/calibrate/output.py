"""What a calibration leaves: the constants file that `nlp-bench plan --constants` takes, a table for people, a JSON object."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlp_bench.config.catalog import load_system
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import write_text
from nlp_bench.plan.calibrate.record import WIDTH_BYTES, Calibration, Constant
from nlp_bench.plan.constants import SCHEMA, Measured, constant_line, read_constants
from nlp_bench.plan.machines import Sheet, measured_sheet, sheet_of
from nlp_bench.show.table import Column, as_text

RECORD_SCHEMA = "nlp-bench/calibrated/1"
WIDE_HEAD = 128.0  # head width at which the time model states the rate of attention (plan/iteration.py)
LEAST = 1e-9  # what is written for a measured 0: constants are above 0
LONELY_LINK = 10e9
"""Bytes per second that are written for the link where one rank measured alone; nothing that one rank does depends on it."""
BUSY_SPREAD = 0.05  # median spread of the repetitions above which something else was using the machine
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
NOTES = {
    "memory_bytes_per_s": "copy, read + written",
    "step_bytes_per_s": "Adam step in fp32, 28 bytes a parameter",
    "product_flops_per_s": "matrix products, large",
    "product_traffic": "bytes / bandwidth added per product",
    "attention_flops_per_s": "causal attention, forward + backward",
    "attention_short": "half speed at this sequence length",
    "attention_narrow": "half speed at this head width",
    "between_products": "GELU, norms, residuals: time / that of a copy",
    "launch_s": "one tiny kernel",
    "host_s": "trainer's overhead",
    "link_latency_s": "all-reduce inside the node, empty",
    "link_bytes_per_s": "all-reduce inside the node, long",
}
HOST = {"step": "per iteration", "batch": "per micro-batch"}


def sheet_or_measured(
    calibration: Calibration, constants: Mapping[str, Constant], system: str | None
) -> tuple[Sheet, Measured | None]:
    """Return what measured rates are shares of: the GPU's data sheet (of `system`, where that is given), else the rates themselves.

    The second is table [machine] of the latter. Raises NlpBenchError where products or copies were not measured,
    UsageError for a system that is not known or has another GPU.
    """
    sheet = _sheet(calibration, system) if calibration.kind == "cuda" else None
    if sheet:
        return sheet, None
    peaks = {name.partition(".")[2]: one.value for name, one in constants.items() if name.startswith("product_flops")}
    copied = constants.get("memory_bytes_per_s")
    if not peaks or copied is None:
        raise NlpBenchError(
            "calibrate: matrix products and copies are needed and were not both measured; give it more --minutes: "
            + "; ".join(calibration.skipped[:3])
        )
    link = constants["link_bytes_per_s"].value if "link_bytes_per_s" in constants else LONELY_LINK
    machine = Measured(
        name=calibration.device,
        kind="cpu" if calibration.kind == "cpu" else "gpu",
        peak_tflops={name: value / 1e12 for name, value in peaks.items()},
        memory_gb_per_s=copied.value / 1e9,
        link_gb_per_s=link / 1e9,
        memory_gib=round(calibration.memory_bytes / 2**30, 1),
    )
    sheet = measured_sheet(machine, calibration.precision if calibration.precision in peaks else next(iter(peaks)))
    return replace(sheet, half_flops=sheet.peak_flops), machine


def _sheet(calibration: Calibration, system: str | None) -> Sheet | None:
    """Return the data sheet; None for a GPU that the table does not have, for which the measurements are used."""
    name, gib = calibration.device, calibration.memory_bytes / 2**30
    if system:
        gpu = load_system(system).gpu
        if gpu is None:
            raise UsageError(f"--system {system}: has no [gpu], but a GPU was measured: {name}")
        name, gib = gpu.name, gpu.memory_gib
    try:
        return sheet_of(name, calibration.precision, gib)
    except UsageError:
        return None


def write_constants(
    path: Path, calibration: Calibration, constants: Mapping[str, Constant], system: str | None
) -> None:
    """Write the tables of benchmark/plan.toml with only what differs; raises NlpBenchError where too little was measured to predict."""
    c, (kept, own) = calibration, (shlex.quote(path.with_suffix(ending).name) for ending in (".json", ".toml"))
    sheet, machine = sheet_or_measured(calibration, constants, system)
    ranks = f"{c.ranks} rank{'s' if c.ranks > 1 else ''}"
    about = f"{c.source}; {ranks}, {c.seconds:.0f} s; before: {c.state_before}; after: {c.state_after}"
    lines = [
        f"# Constants of {c.device}, for `nlp-bench plan --constants`; everything else is as in benchmark/plan.toml.",
        f"# The measurements lie in {kept}; fit again: nlp-bench plan calibrate --from {kept} --output {own}",
        f'schema = "{SCHEMA}"',
        f"about = {json.dumps(about)}",
        "",
        "[time]",
        *(
            constant_line(name, *entry)
            for name, entry in _times(c, constants, sheet, is_measured=bool(machine)).items()
        ),
    ]
    if machine:
        lines += ["", "[machine]", *(f"{name} = {_toml(value)}" for name, value in vars(machine).items())]
    write_text(path, "\n".join(lines) + "\n")


def _times(
    calibration: Calibration, constants: Mapping[str, Constant], sheet: Sheet, *, is_measured: bool
) -> dict[str, tuple[float, str]]:
    """Return value and source of the constants of table [time] that were measured, by name."""
    generation, main = sheet.generation, calibration.precision
    sixteen = 2 / WIDTH_BYTES[main]  # the time model counts 16-bit tensors
    shares = {
        f"products_{generation}": (f"product_flops_per_s.{main}", sheet.half_flops),
        f"attention_{generation}": (f"attention_flops_per_s.{main}", sheet.half_flops),
        "memory_share": ("memory_bytes_per_s", sheet.memory_bytes_per_s),
        "link_share": ("link_bytes_per_s", sheet.link_bytes_per_s),
        "operand_traffic": (f"product_traffic.{main}", sixteen),
        "stream_fused": (f"between_products.{main}", sixteen),
        "attention_short": (f"attention_short.{main}", 1.0),
        "attention_narrow": (f"attention_narrow.{main}", 1.0),
        "collective_latency_s": ("link_latency_s", 1.0),
        "host_layer_s": ("host_s.layer", 1.0),
        "host_batch_s": ("host_s.batch", 1.0),
        "host_step_s": ("host_s.step", 1.0),
    }
    known, found = read_constants().time, {}
    for name, (measured, whole) in shares.items():
        one = constants.get(measured)
        if one is None or name not in known or not whole:
            continue
        value = one.value / whole
        if name.startswith("attention_") and whole != 1:
            narrow = constants.get(f"attention_narrow.{main}")
            value /= 1 + (narrow.value if narrow else 0.0) / WIDE_HEAD
        if whole != 1 and name.startswith(("attention_", "products_", "memory_")):
            value = min(value, 1.0)  # where the peak is a fitted rate of this machine, another fit may lie above
        error = "" if one.error is None else f", +- {one.error:.1%}"
        found[name] = (max(value, LEAST), f"{calibration.source}{error}")
    if is_measured:  # the link's rate is in [machine]
        found["link_share"] = (1.0, f"{calibration.source}: [machine] has the measured rate")
    return found


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value) if isinstance(value, str) else f"{value:.6g}"


def table(calibration: Calibration, constants: Mapping[str, Constant]) -> str:
    """Return the constants with their spread for people, and what was left out."""
    c = calibration
    made = f"{len(c.measurements)} measurements in {c.seconds:.0f} s, {c.date[:10]}, torch {c.torch}"
    lines = [
        f"{c.device}: {made}, {c.ranks} rank{'s' if c.ranks > 1 else ''}",
        f"before: {c.state_before}; after: {c.state_after}; repetitions differ by {c.spread:.1%} (median)",
        "",
        *as_text(_columns(list(constants.values())), has_rule=False),
    ]
    if c.kind == "cpu":
        lines += ["", "CPU: these constants are of this processor and stand for no GPU."]
    lines += ["", "not measured: 8-bit and 4-bit products", *(f"not measured: {line}" for line in c.skipped)]
    if c.spread > BUSY_SPREAD:
        lines += ["", "WARNING: the repetitions differ much: something else used this machine; repeat when it is idle"]
    return "\n".join(lines) + "\n"


def _columns(found: list[Constant]) -> list[Column]:
    return [
        Column(heading="constant", cells=[one.name for one in found], is_text=True),
        Column(heading="value", cells=[_amount(one.value, one.unit) for one in found]),
        Column(heading="+-", cells=[one.error for one in found], form="{:.1%}".format),
        Column(heading="misfit", cells=[one.misfit for one in found], form="{:.1%}".format),
        Column(heading="from", cells=[one.number for one in found]),
        Column(heading="what it is", cells=[_note(one.name) for one in found], is_text=True),
    ]


def _note(constant: str) -> str:
    name, _, which = constant.partition(".")
    return NOTES[name] + (f", {HOST.get(which, 'per layer and micro-batch')}" if name == "host_s" else "")


def _amount(value: float, unit: str) -> str:
    """Return a value with its unit and a decimal prefix."""
    if unit == "s":
        return f"{value * 1e6:.1f} us"
    for factor, prefix in PREFIXES:
        if value >= factor and "/" in unit:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".rstrip()


def record(calibration: Calibration, constants: Mapping[str, Constant]) -> dict[str, Any]:
    """Return the same as a JSON object; missing is None."""
    return {
        "schema": RECORD_SCHEMA,
        **{name: value for name, value in vars(calibration).items() if name not in {"measurements", "skipped"}},
        "num_measurements": len(calibration.measurements),
        "median_spread": calibration.spread,
        "constants": {name: {k: v for k, v in vars(one).items() if k != "name"} for name, one in constants.items()},
        "skipped": list(calibration.skipped),
    }
