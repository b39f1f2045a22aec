"""`nlp-bench rehearse`: what it prints, what it writes, what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Ask

from nlp_bench.cli.main import main
from nlp_bench.errors import NlpBenchError
from nlp_bench.rehearse.ranks import Work, rehearse_ranks

JOB = ("rehearse", "--model", "tiny", "--system", "dgx-a100", "--nodes", "2", "--tp", "2", "--pp", "2", "--gas", "4")


@pytest.mark.slow
def test_the_ranks_that_hold_most_as_a_table_and_as_a_file(tmp_path: Path, told: Ask) -> None:
    printed = told(*JOB, "--vpp", "2", "--output", tmp_path).out
    assert "pipeline 2 x 2 virtual" in printed
    assert "fits 80 GiB: yes" in printed
    record = json.loads((tmp_path / "rehearsal.json").read_text())
    assert record["schema"] == "nlp-bench/rehearsal/1"
    assert [rank["rank"] for rank in record["ranks"]] == [0, 8]
    for rank in record["ranks"]:
        assert sum(rank["peak_split"].values()) == rank["peak_bytes"]
        assert sum(rank["activations"].values()) == rank["peak_split"]["activations"]
        assert sum(rank["static_bytes"].values()) < rank["peak_bytes"] < rank["needed_bytes"]
        assert {one["group"] for one in rank["collectives"]} >= {"tensor", "pipeline", "data", "world"}


def test_a_resolved_run_is_rehearsed_as_json(tmp_path: Path, told: Ask) -> None:
    assert main(["check", *JOB[1:], "--offline", "--output", str(tmp_path)]) == 0
    record = told("rehearse", "--run", tmp_path, "--ranks", "last", "--format", "json").json
    assert [rank["rank"] for rank in record["ranks"]] == [15]
    assert record["layout"]["num_microbatches"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ranks", "16"), "16 is none of the job's 16 ranks, 0 to 15"),
        (("--tp", "3"), "not a multiple of tp*pp = 6"),
        (("--vpp", "3"), "is not a multiple of pp*vpp = "),
        (("--vpp", "x"), "'x' is not a whole number"),
        (("--run", "run.json"), "leave the options that describe a run out"),
        (("--train-args", "--fp8-format e4m3 --bf16"), "Transformer Engine"),
        (("--nodes", "0"), "'0' is not a whole number above 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words: tuple[str, ...], said: str, told: Ask) -> None:
    job = list(JOB)
    if words[0] in job:  # an option is given once
        del job[job.index(words[0]) : job.index(words[0]) + 2]
    assert said in told(*job, *words, code=2).err


class Dies:
    """Ends the process that reads it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (9,)


def test_a_rank_that_stops_or_dies_is_an_error_with_its_number() -> None:
    work = Work(settings=None, layout=None, rank=7, accelerator="cuda")  # type: ignore[arg-type]
    with pytest.raises(NlpBenchError, match="rank 7 stops: AttributeError"):
        list(rehearse_ranks([work]))
    work = Work(settings=Dies(), layout=None, rank=8, accelerator="cuda")  # type: ignore[arg-type]
    with pytest.raises(NlpBenchError, match="rank 8 ended with code 9"):
        list(rehearse_ranks([work]))


@pytest.mark.slow
def test_a_login_node_that_limits_memory_is_told() -> None:
    words = ["bash", "-c", 'ulimit -v 600000; exec "$0" -m nlp_bench "$@"', sys.executable, *JOB]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "`ulimit -v`" in done.stderr
    assert "Traceback" not in done.stderr
