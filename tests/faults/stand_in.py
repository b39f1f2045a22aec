"""Runs whose training is a stand-in (stub/), and JUBE's file for them: for the tests of faults and the soaks."""

import dataclasses
import sys
from pathlib import Path

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run

TEMPLATE = Path(__file__).parent / "endings.yaml"
STUB = Path(__file__).parent / "stub"


def stub_run(mode: str, *sbatch_args: str, launcher: str = "slurm", **launch: str) -> Run:
    """Return a resolved run of 4 iterations on one node, whose training ends as `mode` says."""
    nodes = 2 if mode.startswith("other") else 1
    system = "slurm-sandbox" if launcher == "slurm" else "local"
    request = Request(
        model="tiny", system=system, launcher=launcher, data_path="mock", iterations=4, nodes=nodes, gpus_per_node=1, tensor=1, pipeline=1,
    )  # fmt: skip
    run = resolve(request, ask_scheduler=False)
    changed = dataclasses.replace(
        run.system,
        slurm=dataclasses.replace(run.system.slurm, sbatch_args=sbatch_args, gres=""),
        environment={**run.system.environment, "PYTHONPATH": str(STUB), "NLP_BENCH_STUB": mode},
    )
    return dataclasses.replace(run, system=changed, launch=dataclasses.replace(run.launch, **launch))


def jube_file(folder: Path, *, before: dict[str, str] | None = None, **runs: Run) -> Path:
    """Write JUBE's file for runs by name, each a point, with a folder per name; `before` is a line of shell for one."""
    for name, run in runs.items():
        (folder / name).mkdir()
        run.write(folder / name)
        (folder / name / "before").write_text((before or {}).get(name, "true") + "\n")
    text = TEMPLATE.read_text(encoding="utf-8")
    for token, value in {"CASES": ",".join(runs), "FOLDER": str(folder), "PYTHON": sys.executable}.items():
        text = text.replace(f"#{token}#", value)
    (folder / "endings.yaml").write_text(text, encoding="utf-8")
    return folder / "endings.yaml"


def submit(record: Path, run_dir: Path, *further: str) -> list[str]:
    """Return the words that submit the run of `record` into `run_dir`, with nobody to follow it."""
    return ["submit", "--run", str(record), "--run-dir", str(run_dir), "--no-follow", *further]
