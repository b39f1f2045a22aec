"""Whether a rate can be true: no hardware computes faster than its peak, and no step of a large model takes milliseconds.

A training step needs at least 6 floating-point operations per parameter and token (Kaplan et al. 2020,
https://arxiv.org/abs/2001.08361, section 2.1: forward 2, backward 4). It is a lower bound: attention and recompute come on top.
"""

import numpy as np

from nlp_bench.config.accelerators import bound_of
from nlp_bench.errors import NlpBenchError
from nlp_bench.logs.record import Attempt, Records
from nlp_bench.measure.sizes import Sizes
from nlp_bench.reason import Reason

ANY_PEAK_TFLOPS = 50_000.0
"""Above this no device that is sold computes in any format (2026)."""
LARGE_PARAMETERS = 1e9
LARGE_MODEL_S = 0.005
"""Launching the kernels of a model of LARGE_PARAMETERS, forward and backward, takes longer than this."""


def why_implausible(attempt: Attempt, sizes: Sizes, tokens_per_second: float) -> Reason | None:
    """Return why `tokens_per_second` (whole machine) cannot be true by what the log says of model and devices, else None."""
    # A log that states no count may show the shape: what GPT layers of it have at least.
    parameters, devices = attempt.fact("parameters") or attempt.fact("least_parameters"), sizes.num_devices
    stated = _median(attempt.records, "model_tflops") or _median(attempt.records, "tflops")
    if stated and stated > ANY_PEAK_TFLOPS:
        return Reason(
            "implausible", f"implausible: the log states {stated:.0f} TFLOP/s per device, more than any device has"
        )
    if not parameters:
        return None
    elapsed = float(np.nanmedian(sizes.elapsed_s)) if sizes.has_times else None
    if elapsed and parameters >= LARGE_PARAMETERS and elapsed < LARGE_MODEL_S:
        words = f"an iteration of {elapsed * 1000:.3g} ms for {parameters / 1e9:.3g} billion parameters"
        return Reason("implausible", f"implausible: {words} is the dispatch, not the work")
    name, peak = _peak(attempt)
    needed = 6 * parameters * tokens_per_second / devices / 1e12 if devices else 0.0
    if needed > peak:
        formula = f"6 x {parameters:.4g} parameters x {tokens_per_second:.2f} tokens/s / {devices} devices"
        text = f"implausible: {formula} = {needed:.0f} TFLOP/s per device, more than the {peak:.0f} of {name}"
        return Reason("implausible", text)
    return None


def _median(records: Records, name: str) -> float | None:
    column = records.column(name)
    column = column[np.isfinite(column)]
    return float(np.median(column)) if len(column) else None


def _peak(attempt: Attempt) -> tuple[str, float]:
    """Return the family of the device and what none of it exceeds in any format, the fastest variant of a word that means several."""
    device = attempt.facts.get("device")
    try:
        found = bound_of(str(device.value)) if device else None
    except NlpBenchError:
        found = None  # without the data files of the checkout the bound of all devices holds
    return found or ("any device", ANY_PEAK_TFLOPS)
