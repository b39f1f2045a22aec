"""A Slurm that forgets a job two seconds after its end, and has no accounting: the log of completed jobs is asked."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import CHECKOUT, NLP_BENCH, until
from support.sandbox import sandbox

from faults import stand_in
from nlp_bench.config.run import Run

pytestmark = [pytest.mark.slurm]


def test_a_job_that_slurm_has_forgotten(stub_run: Callable[..., Run], tmp_path: Path) -> None:
    with sandbox(1, "MinJobAge=2\n") as slurm:
        slurm.environment |= CHECKOUT
        run_dir = tmp_path / "run"
        record = stub_run("ok", "--hold").write(tmp_path)
        slurm(*NLP_BENCH, *stand_in.submit(record, run_dir))
        job = json.loads((run_dir / "submit.json").read_text())["job_id"]
        slurm("scancel", job)
        until(lambda: job not in slurm("squeue", "--states=all", "--noheader", "--format=%i").split())
        slurm(*NLP_BENCH, "sync", str(run_dir))
    ended = json.loads((run_dir / "outcome.json").read_text())
    assert (ended["outcome"], ended["sources"]["slurm"]["source"]) == ("CANCELLED", "sacct -c")
