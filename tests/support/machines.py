"""A finished run of ours with a time of day in its log and the records that its nodes leave: change a value to change the story."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.megatron_log import line
from support.published import RUN, write_run

BEGIN_S = 1_763_640_000.0
ITERATION_S = 2.0
TOKENS_PER_ITERATION = 96 * 2048
FIRST_LINE = 20  # seconds of the first line, which is warm-up; then one line every 2 s


def log_text(iterations: int = 100, before: str = "") -> str:
    """A log with a line per iteration of 2 s and the time of day at its end."""
    same = {"lr": 1e-6, "batch": 96, "scale": 1, "norm": 1, "skipped": 0, "nan": 0}
    for n in range(1, iterations + 1):
        elapsed_s = FIRST_LINE if n == 1 else ITERATION_S
        facts = {"samples": 96 * n, "loss": 8 - 0.01 * n, "stamp": BEGIN_S + FIRST_LINE + ITERATION_S * (n - 1)}
        rates = {"s": elapsed_s, "rate": 96 / elapsed_s, "tflops": 200 / elapsed_s}
        before += line(n, iterations, "[default3]: ", **facts, **rates, **same)
    return before


@dataclass
class Node:
    """One node of four GPUs that draw 100 W, 110 W, ... as its recorder writes it down."""

    name: str
    num_gpus: int = 4
    times: Sequence[float] = tuple(BEGIN_S - 5 + n for n in range(240))
    facts: dict[str, Any] = field(default_factory=dict)
    gpu_facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    cell: Callable[[str, float], float | str | None] = lambda _column, _time_s: None
    """cell(column, time): another value of a cell; None keeps it, "" empties it."""
    num_packages: int = 0
    range_uj: int = 262_143_328_850

    def gpus(self) -> list[dict[str, Any]]:
        usual = {"name": "NVIDIA A100-SXM4-40GB", "is_used": True, "no_energy_counter": None}
        usual |= {"power_limit_w": 400.0, "default_power_limit_w": 400.0}
        own = [{"index": i, "uuid": f"GPU-{self.name}-{i}"} for i in range(self.num_gpus)]
        return [{**one, **usual, **self.gpu_facts.get(i, {})} for i, one in enumerate(own)]

    def write(self, run_dir: Path) -> None:
        folder = run_dir / "machine"
        folder.mkdir(exist_ok=True)
        packages = [{"name": f"package-{i}", "range_uj": self.range_uj} for i in range(self.num_packages)]
        facts = {
            "schema": "nlp-bench/machine/1", "node": self.name, "boot_id": f"boot of {self.name}", "gpus": self.gpus(),
            "cpu_packages": packages, "no_meter": None, "kernel": "5.14", "driver": "535.104.05", "infiniband": [], "modules": [],
            "cpu": {"model": "AMD EPYC 7402 24-Core Processor"}, **self.facts,
        }  # fmt: skip
        (folder / f"{self.name}.json").write_text(json.dumps(facts))
        names = [name for name, _ in self.row(0.0)]
        rows = [",".join(self.text(name, value, time_s) for name, value in self.row(time_s)) for time_s in self.times]
        (folder / f"{self.name}.samples.csv").write_text("\n".join([",".join(names), *rows]) + "\n")

    def text(self, name: str, value: float, time_s: float) -> str:
        other = self.cell(name, time_s)
        return f"{value:.12g}" if other is None else str(other)

    def row(self, time_s: float) -> list[tuple[str, float]]:
        row: list[tuple[str, float]] = [("unix_time_s", time_s), ("load_1min", 4.0)]
        for i in range(self.num_gpus):
            watts = 100 + 10 * i
            row += [
                (f"gpu{i}_energy_mj", 1e3 * watts * (time_s - BEGIN_S + 1e6)), (f"gpu{i}_power_w", watts),
                (f"gpu{i}_sm_clock_mhz", 1410), (f"gpu{i}_throttle_reasons", 0), (f"gpu{i}_temperature_c", 60),
            ]  # fmt: skip
        for i in range(self.num_packages):
            row.append((f"cpu{i}_energy_uj", 150e6 * (time_s - BEGIN_S + 1e6) % self.range_uj))
        return row


def write_machine_run(
    folder: Path, nodes: Sequence[Node], *, accelerator: str = "cuda", before: str = "", num_nodes: int | None = None
) -> Path:
    """Write a run of 100 iterations on `nodes`, with four ranks each."""
    count = num_nodes or len(nodes)
    run = {
        **RUN,
        "model": {"name": "mine"},
        "system": {"name": "machine", "version": "2026", "accelerator": accelerator},
        "parallel": {"nodes": count, "num_gpus": 4 * count, "tensor": 4, "pipeline": 1, "data": count},
        "training": {"iterations": 100, "log_interval": 1},
    }
    write_run(folder, run=run, log=log_text(before=before))
    packages = {"torch": "2.6.0", "nvidia-nccl-cu12": "2.21.5", "apex": None}
    environment = {"schema": "nlp-bench/environment/1", "packages": packages}
    (folder / "environment.json").write_text(json.dumps(environment))
    for node in nodes:
        node.write(folder)
    return folder
