"""A machine with known constants, and what it would measure."""

from collections.abc import Callable
from typing import Any

from nlp_bench.plan.calibrate.record import Calibration, Measurement
from nlp_bench.plan.calibrate.trainer import RUNS
from nlp_bench.plan.calibrate.work import (
    Task,
    all_reduce_tasks,
    attention_tasks,
    copy_tasks,
    layer_tasks,
    product_tasks,
    step_tasks,
)

CAUSAL_BOTH = 3.5 / 6
"""Causal forward with backward / that of the full square: 0.5 x (1 + 2.5) of 3 (Dao 2023, section 4.1)."""
BANDWIDTH, CEILING, TRAFFIC = 3e12, 7.7e14, 1.6
RATE, SHORT, NARROW = 5e14, 300.0, 16.0
LATENCY, LINK = 2e-5, 2.4e11
STEP, BATCH, LAYER = 4e-3, 5e-4, 2e-3


def measured(task: Task, seconds: float) -> Measurement:
    facts = {name: getattr(task, name) for name in ("kind", "name", "precision", "sizes", "flops", "num_bytes")}
    return Measurement(**facts, seconds=seconds, spread=0.01, repeats=9, calls=1)


def product_seconds(task: Task) -> float:
    return float(((task.flops / CEILING) ** 2 + (TRAFFIC * task.num_bytes / BANDWIDTH) ** 2) ** 0.5)


def attention_seconds(task: Task) -> float:
    length, width = task.sizes["sequence_length"], task.sizes["head_width"]
    return task.flops * CAUSAL_BOTH / RATE * (1 + SHORT / length) * (1 + NARROW / width)


def reduce_seconds(task: Task) -> float:
    return LATENCY + 2 * 3 / 4 * task.num_bytes / LINK


def host_seconds(layers: int, batches: int) -> float:
    return STEP + batches * (BATCH + LAYER * layers)


def iteration(layers: int, batches: int, seconds: float) -> Measurement:
    sizes = {"layers": layers, "microbatches": batches}
    facts: dict[str, Any] = {"kind": "trainer", "name": "iteration", "precision": "bf16", "sizes": sizes}
    return Measurement(**facts, seconds=seconds, spread=0.02, repeats=30, calls=1)


def calibration(noise: Callable[[], float]) -> Calibration:
    rows = [measured(one, product_seconds(one) * noise()) for one in product_tasks("bf16")[::7]]
    attended = [one for one in attention_tasks("bf16") if one.name == "both"]
    rows += [measured(one, attention_seconds(one) * noise()) for one in attended]
    rows += [measured(one, one.num_bytes / BANDWIDTH) for one in copy_tasks("bf16")]
    rows += [measured(one, 1.5 * one.num_bytes / BANDWIDTH * noise()) for one in layer_tasks("bf16")]
    rows += [measured(one, one.num_bytes / BANDWIDTH) for one in step_tasks()]
    rows += [measured(one, reduce_seconds(one) * noise()) for one in all_reduce_tasks(4)]
    rows += [iteration(layers, batches, host_seconds(layers, batches)) for layers, batches in RUNS]
    return of(rows)


def of(rows: list[Measurement], **changes: Any) -> Calibration:
    facts: dict[str, Any] = {
        "device": "NVIDIA Test", "kind": "cuda", "memory_bytes": 80 << 30, "ranks": 4, "precision": "bf16",
        "torch": "2.13.0", "date": "2026-11-20T18:00:00+00:00", "seconds": 300.0, "state_before": "idle",
        "state_after": "idle", "skipped": (),
    }  # fmt: skip
    return Calibration(**(facts | changes), measurements=tuple(rows))
