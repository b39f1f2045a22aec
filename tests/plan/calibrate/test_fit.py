"""Known constants are found again in what they would make a machine measure."""

import random
from typing import Any

import pytest
from support.known_machine import (
    BANDWIDTH,
    BATCH,
    CEILING,
    LATENCY,
    LAYER,
    LINK,
    NARROW,
    RATE,
    SHORT,
    STEP,
    TRAFFIC,
    calibration,
    of,
)

from nlp_bench.plan.calibrate.fit import fit_all
from nlp_bench.plan.calibrate.record import read_calibration

EXPECTED = {
    "memory_bytes_per_s": BANDWIDTH,
    "step_bytes_per_s": BANDWIDTH,
    "product_flops_per_s.bf16": CEILING,
    "product_traffic.bf16": TRAFFIC,
    "attention_flops_per_s.bf16": RATE,
    "attention_short.bf16": SHORT,
    "attention_narrow.bf16": NARROW,
    "between_products.bf16": 1.5,
    "link_latency_s": LATENCY,
    "link_bytes_per_s": LINK,
    "host_s.step": STEP,
    "host_s.batch": BATCH,
    "host_s.layer": LAYER,
}


def test_exact_measurements_give_the_constants_back() -> None:
    found = fit_all(calibration(lambda: 1.0))
    assert set(found) == set(EXPECTED)
    for name, value in EXPECTED.items():
        assert found[name].value == pytest.approx(value, rel=0.01), name
        assert found[name].misfit is None or found[name].misfit < 0.01


def test_noise_and_disturbed_measurements_move_them_little_and_the_error_says_how_much() -> None:
    drawn = random.Random(3)  # noqa: S311  # noise, not a secret
    found = fit_all(calibration(lambda: drawn.lognormvariate(0, 0.03) * (1.8 if drawn.random() < 0.04 else 1.0)))
    for name, value in EXPECTED.items():
        one = found[name]
        assert one.error is not None
        assert one.value == pytest.approx(value, rel=max(0.05, 4 * one.error)), name
        assert one.error < 0.3, name
    assert found["product_flops_per_s.bf16"].value == pytest.approx(CEILING, rel=0.03)
    assert found["attention_flops_per_s.bf16"].value == pytest.approx(RATE, rel=0.08)


def test_what_was_not_measured_has_no_constant() -> None:
    rows = [m for m in calibration(lambda: 1.0).measurements if m.kind == "stream"]
    assert set(fit_all(of(rows))) == {"memory_bytes_per_s", "between_products.bf16"}
    assert fit_all(of([])) == {}


def test_the_record_keeps_everything_that_a_fit_needs(tmp_path: Any) -> None:
    made = calibration(lambda: 1.0)
    made.write(tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == made
