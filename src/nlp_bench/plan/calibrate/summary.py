"""A calibration for people and for programs: the fitted constants with their spread, and what was left out."""

from typing import Any

from nlp_bench.plan.calibrate.fit import Constant
from nlp_bench.plan.calibrate.record import Calibration

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SCHEMA = "nlp-bench/calibrated/1"
BUSY_SPREAD = 0.05
"""Median spread of the repetitions above which something else was using the machine."""
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


def text(calibration: Calibration, constants: dict[str, Constant]) -> str:
    """Return the table."""
    c = calibration
    made = f"{len(c.measurements)} measurements in {c.seconds:.0f} s, {c.date[:10]}, torch {c.torch}"
    lines = [
        f"{c.device}: {made}, {c.ranks} rank{'s' if c.ranks > 1 else ''}",
        f"before: {c.state_before}; after: {c.state_after}; repetitions differ by {spread(c):.1%} (median)",
        "",
        f"{'constant':<30} {'value':>14}  {'+-':>6} {'misfit':>7} {'from':>5}  what it is",
    ]
    lines += [_line(constant) for constant in constants.values()]
    if calibration.kind == "cpu":
        lines += ["", "CPU: these constants are of this processor and stand for no GPU."]
    lines += ["", "not measured: 8-bit and 4-bit products", *(f"not measured: {line}" for line in c.skipped)]
    if spread(c) > BUSY_SPREAD:
        lines += ["", "WARNING: the repetitions differ much: something else used this machine; repeat when it is idle"]
    return "\n".join(lines) + "\n"


def record(calibration: Calibration, constants: dict[str, Constant]) -> dict[str, Any]:
    """Return the same as a JSON object; missing is None."""
    c = calibration
    named = (
        "device",
        "kind",
        "ranks",
        "precision",
        "memory_bytes",
        "torch",
        "date",
        "seconds",
        "state_before",
        "state_after",
    )
    return {
        "schema": SCHEMA,
        **{name: getattr(c, name) for name in named},
        "num_measurements": len(c.measurements),
        "median_spread": spread(c),
        "constants": {name: {k: v for k, v in vars(one).items() if k != "name"} for name, one in constants.items()},
        "skipped": list(c.skipped),
    }


def spread(calibration: Calibration) -> float:
    """Return the median over all measurements of the spread of their repetitions."""
    spreads = sorted(m.spread for m in calibration.measurements)
    return spreads[len(spreads) // 2]


def _line(one: Constant) -> str:
    name, _, which = one.name.partition(".")
    note = NOTES[name] + (f", {HOST.get(which, 'per layer and micro-batch')}" if name == "host_s" else "")
    error = "" if one.error is None else f"{one.error:.1%}"
    misfit = "" if one.misfit is None else f"{one.misfit:.1%}"
    return f"{one.name:<30} {amount(one.value, one.unit):>14}  {error:>6} {misfit:>7} {one.number:>5}  {note}"


def amount(value: float, unit: str) -> str:
    """Return a value with its unit and a decimal prefix."""
    if unit == "s":
        return f"{value * 1e6:.1f} us"
    for factor, prefix in PREFIXES:
        if value >= factor and "/" in unit:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".rstrip()
