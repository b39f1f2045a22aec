"""The constants files that `nlp-bench plan --constants` takes: the tables of benchmark/plan.toml, with only what differs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlp_bench.files import write_text
from nlp_bench.plan.calibrate.fit import Constant
from nlp_bench.plan.calibrate.products import WIDTH_BYTES
from nlp_bench.plan.calibrate.record import Calibration
from nlp_bench.plan.calibrate.sheet import Reference, reference_of
from nlp_bench.plan.constants import SCHEMA, constant_line, read_constants

WIDE_HEAD = 128.0
"""Head width at which the time model states the rate of attention (plan/iteration.py)."""
LEAST = 1e-9
"""What stands for a measured 0: constants are above 0."""


def write_constants(
    path: Path, calibration: Calibration, constants: Mapping[str, Constant], system: str | None
) -> None:
    """Write what was fitted. Raises NlpBenchError where the measurements do not suffice to predict anything."""
    write_text(
        path, text(calibration, constants, reference_of(calibration, constants, system), path.with_suffix(".json").name)
    )


def text(calibration: Calibration, constants: Mapping[str, Constant], reference: Reference, beside: str) -> str:
    """Return the file's text."""
    lines = [
        f"# Constants of {calibration.device}, for `nlp-bench plan --constants`; everything else is as in benchmark/plan.toml.",
        f"# The measurements lie in {beside}; fit again: nlp-bench plan calibrate --from {beside} --output {Path(beside).stem}.toml",
        f'schema = "{SCHEMA}"',
        f"about = {json.dumps(_about(calibration))}",
        "",
        "[time]",
    ]
    lines += [
        constant_line(name, value, source) for name, (value, source) in times(calibration, constants, reference).items()
    ]
    if reference.measured:
        lines += ["", "[machine]", *(f"{name} = {_plain(value)}" for name, value in reference.machine.items())]
    return "\n".join(lines) + "\n"


def times(
    calibration: Calibration, constants: Mapping[str, Constant], reference: Reference
) -> dict[str, tuple[float, str]]:
    """Return value and source of the constants of table [time] that were measured, by name."""
    generation, main = reference.generation, calibration.precision
    sixteen = 2 / WIDTH_BYTES[main]  # the time model counts 16-bit tensors
    shares = {
        f"products_{generation}": (f"product_flops_per_s.{main}", reference.peak_flops),
        f"attention_{generation}": (f"attention_flops_per_s.{main}", reference.peak_flops),
        "memory_share": ("memory_bytes_per_s", reference.memory_bytes_per_s),
        "link_share": ("link_bytes_per_s", reference.link_bytes_per_s),
        "operand_traffic": (f"product_traffic.{main}", sixteen),
        "stream_fused": (f"between_products.{main}", sixteen),
        "attention_short": (f"attention_short.{main}", 1.0),
        "attention_narrow": (f"attention_narrow.{main}", 1.0),
        "collective_latency_s": ("link_latency_s", 1.0),
        "host_layer_s": ("host_s.layer", 1.0),
        "host_batch_s": ("host_s.batch", 1.0),
        "host_step_s": ("host_s.step", 1.0),
    }
    known = read_constants().time
    found = {}
    for name, (measured, whole) in shares.items():
        if measured in constants and name in known and whole:
            value = constants[measured].value / whole
            if name.startswith("attention_") and whole != 1:
                value /= 1 + _narrow(constants, main) / WIDE_HEAD
            found[name] = (max(value, LEAST), _source(calibration, constants[measured]))
    if reference.measured:  # the link's rate stands in [machine]
        found["link_share"] = (1.0, f"{calibration.source}: [machine] has the measured rate")
    return found


def _narrow(constants: Mapping[str, Constant], main: str) -> float:
    one = constants.get(f"attention_narrow.{main}")
    return one.value if one else 0.0


def _about(calibration: Calibration) -> str:
    c = calibration
    return f"{c.source}; {c.ranks} rank{'s' if c.ranks > 1 else ''}, {c.seconds:.0f} s; before: {c.state_before}; after: {c.state_after}"


def _source(calibration: Calibration, constant: Constant) -> str:
    error = "" if constant.error is None else f", +- {constant.error:.1%}"
    return f"{calibration.source}{error}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_plain(one)}" for name, one in value.items()) + " }"
    return json.dumps(value) if isinstance(value, str) else f"{value:.6g}"
