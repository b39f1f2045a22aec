"""The five published log lines of the benchmark, and a run folder of ours around them."""

import json
from pathlib import Path

import pytest
from support.megatron_log import line

RUN = {
    "schema": "nlp-bench/run/1",
    "nlp_bench": {"version": "0.1.0", "commit": "abc"},
    "model": {"name": "175", "parameters_billion": 175},
    "system": {"name": "machine", "version": "2026", "accelerator": "cuda"},
    "launch": {"queue": "batch", "timelimit": "00:45:00", "launcher": "slurm"},
    "parallel": {"nodes": 96, "num_gpus": 384, "tensor": 8, "pipeline": 8, "data": 6},
    "batch": {"micro_batch_size": 1, "gradient_accumulation_steps": 16, "global_batch_size": 96, "sequence_length": 2048},
    "training": {"iterations": 50, "log_interval": 10},
}  # fmt: skip
OUTCOME = {
    "schema": "nlp-bench/outcome/1", "outcome": "VALID", "reasons": [], "evidence": None, "exit_status": 0, "job_id": "4711",
    "ended": "2026-01-01T00:00:00+00:00",
}  # fmt: skip
PUBLISHED = [
    (7.2310, 4.438e-07, 1.010967e01, 178.553, 13.276, 101.54),
    (5.3551, 8.876e-07, 8.861832e00, 46.241, 17.927, 137.10),
    (5.6192, 1.331e-06, 8.532865e00, 8.121, 17.084, 130.66),
    (5.3291, 1.775e-06, 8.442033e00, 207.531, 18.014, 137.77),
    (5.3247, 2.219e-06, 8.110270e00, 5.662, 18.029, 137.89),
]


def published_log(total: int = 3125000) -> str:
    """The five published lines of the benchmark's description, from the format of its patched Megatron-LM."""
    names = ("s", "lr", "loss", "norm", "rate", "tflops")
    same = {"batch": 96, "scale": 4096, "skipped": 0, "nan": 0}
    return "".join(
        line(10 * n, total, "[default3]: ", samples=960 * n, **dict(zip(names, values, strict=True)), **same)
        for n, values in enumerate(PUBLISHED, start=1)
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of somebody else: the five published lines."""
    path = tmp_path / "job.log"
    path.write_text(published_log())
    return path


def write_run(
    folder: Path, outcome: str = "VALID", *, run: dict[str, object] = RUN, log: str | None = None, **changes: object
) -> Path:
    """Write a finished run of ours, with the five published lines where there is no `log`; `changes` go into outcome.json."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "outcome.json").write_text(json.dumps({**OUTCOME, "outcome": outcome, **changes}))
    (folder / "job.out").write_text(published_log(total=50) if log is None else log)
    return folder


def change_record(folder: Path, name: str, **values: object) -> None:
    """Change fields of run.json or outcome.json: `training__iterations=5` is `training.iterations`."""
    record = json.loads((folder / name).read_text())
    for field, value in values.items():
        *path, last = field.split("__")
        inner = record
        for part in path:
            inner = inner[part]
        inner[last] = value
    (folder / name).write_text(json.dumps(record))
