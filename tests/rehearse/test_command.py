"""`nlp-bench rehearse`: which ranks, whether each fits, what it prints and writes, what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Cli

from nlp_bench.cli.main import main
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.plan.constants import read_constants
from nlp_bench.rehearse.ranks import Work, chosen_ranks, rehearse_ranks
from nlp_bench.rehearse.report import Collective, RankReport, headroom_of, worst

JOB = ("rehearse", "--model", "tiny", "--system", "dgx-a100", "--nodes", "2", "--tp", "2", "--pp", "2", "--gas", "4")


@pytest.mark.slow
def test_the_ranks_that_hold_most_as_a_table_and_as_a_file(tmp_path: Path, cli: Cli) -> None:
    printed = cli(*JOB, "--vpp", "2", "--output", tmp_path).out
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


def test_a_resolved_run_is_rehearsed_as_json(tmp_path: Path, cli: Cli) -> None:
    assert main(["check", *JOB[1:], "--offline", "--output", str(tmp_path)]) == 0
    done = cli("rehearse", "--run", tmp_path, "--ranks", "last", "--format", "json")
    assert done.out.endswith("}\n"), "a document, as every other command prints it, with no line behind it"
    record = done.json
    assert [rank["rank"] for rank in record["ranks"]] == [15]
    assert record["layout"]["num_microbatches"] == 4


@pytest.mark.slow
def test_a_long_rehearsal_says_how_far_it_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a file not a byte was written in minutes, where the first rank had not taken long."""
    monkeypatch.setattr("nlp_bench.cli.plan.rehearse.STEP_S", 0.0)
    said = cli(*JOB, "--ranks", "0-2").err.splitlines()
    assert [line.partition(" ranks, ")[0] for line in said] == [
        f"nlp-bench: rehearsed {number} of 3" for number in (1, 2)
    ]
    assert all(line.endswith(" s left") for line in said)


SITE = """import os, sys
def seen(event, arguments):
    if event == "import" and arguments[0] == "torch":
        with open({file!r}, "a") as file:
            print(repr(os.environ.get("CUDA_VISIBLE_DEVICES")), file=file)
sys.addaudithook(seen)
"""


@pytest.mark.slow
def test_torch_is_imported_without_this_machine_s_gpus(tmp_path: Path) -> None:
    """On a machine with a GPU a rank, forked from a process that had counted it, ended in a CUDA error."""
    seen = tmp_path / "seen"
    (tmp_path / "sitecustomize.py").write_text(SITE.format(file=str(seen)))
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    subprocess.run(
        [sys.executable, "-m", "nlp_bench", *JOB, "--ranks", "0"], check=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "0"},
    )  # fmt: skip
    assert set(seen.read_text().split()) == {"''"}


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
def test_what_cannot_be_is_refused_before_anything_starts(words: tuple[str, ...], said: str, cli: Cli) -> None:
    job = list(JOB)
    if words[0] in job:  # an option is given once
        del job[job.index(words[0]) : job.index(words[0]) + 2]
    assert said in cli(*job, *words, code=2).err


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


@pytest.mark.parametrize(
    ("words", "stages", "ranks"),
    [
        ("0,last", 8, [0, 383]),
        ("5-7, 6,0", 8, [0, 5, 6, 7]),
        ("stages", 8, [0, 48, 96, 144, 192, 240, 288, 336]),
        ("fullest", 8, [0, 48, 336]),
        ("fullest", 1, [0]),
        ("all", 8, list(range(384))),
    ],
)
def test_words(words: str, stages: int, ranks: list[int]) -> None:
    assert chosen_ranks(words, num_ranks=384, num_stages=stages) == ranks


@pytest.mark.parametrize("words", ["", "x", "-1", "1.5", "0-", "384", "0-384", "7-5", "0,,1", "9" * 5000])
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        chosen_ranks(words, num_ranks=384, num_stages=8)


def report(peak_bytes: int, groups: int) -> RankReport:
    sent = tuple(
        Collective(kind="all_reduce", group=f"group {number}", group_size=1 + number, num_bytes=4, count=1)
        for number in range(groups)
    )
    return RankReport(
        rank=0, place={}, parameters=1, static_bytes={"weights": peak_bytes},
        peak_bytes=peak_bytes, peak_split={}, activations={}, flops={}, collectives=sent,
    )  # fmt: skip


def test_each_communicator_takes_memory_and_a_group_of_one_rank_none() -> None:
    memory = read_constants().memory
    few, many = (headroom_of(report(0, groups), 10**12, read_constants()) for groups in (1, 3))
    assert few.overhead_bytes == memory.context_bytes
    assert many.overhead_bytes == memory.context_bytes + 2 * memory.communicator_bytes


def test_the_answer_is_the_worst_rank_s_and_there_is_none_without_a_gpu() -> None:
    found = {share: headroom_of(report(share * 10**10, 0), 10**12, read_constants()) for share in (50, 100, 120)}
    assert [one.fits for one in found.values()] == ["yes", "tight", "no"]
    assert (worst([found[50], found[120], found[100]]), worst([found[50]])) == ("no", "yes")
    headroom = headroom_of(report(1, 0), None, read_constants())
    assert (headroom.fits, headroom.needed_bytes, worst([headroom])) == (None, None, None)
