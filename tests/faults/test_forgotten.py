"""A Slurm that forgets a job two seconds after its end, and has no accounting: the log of completed jobs is asked."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sandbox import sandbox

from faults import stand_in
from nlp_bench.config.run import Run

pytestmark = [pytest.mark.slurm]
NLP_BENCH = (sys.executable, "-m", "nlp_bench")


def test_a_job_that_slurm_has_forgotten(stub_run: Callable[..., Run], tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    with sandbox(1, "MinJobAge=2\n") as slurm:
        slurm.environment |= {
            "NLP_BENCH_VENV": sys.prefix,
            "NLP_BENCH_ROOT": str(root),
            "PYTHONPATH": str(root / "src"),
        }
        run_dir = tmp_path / "run"
        record = stub_run("ok", "--hold").write(tmp_path)
        slurm(*NLP_BENCH, *stand_in.submit(record, run_dir))
        job = json.loads((run_dir / "submit.json").read_text())["job_id"]
        slurm("scancel", job)
        end = time.monotonic() + 60
        while job in slurm("squeue", "--states=all", "--noheader", "--format=%i").split():
            assert time.monotonic() < end
            time.sleep(0.5)
        slurm(*NLP_BENCH, "sync", str(run_dir))
    ended = json.loads((run_dir / "outcome.json").read_text())
    assert (ended["outcome"], ended["sources"]["slurm"]["source"]) == ("CANCELLED", "sacct -c")
