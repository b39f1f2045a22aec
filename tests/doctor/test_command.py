"""The command as a person calls it."""

import sys
from pathlib import Path

import pytest
from support.command import Cli
from support.examining import Program
from support.processes import execute

from nlp_bench.cli.main import main
from nlp_bench.doctor.checks import CHECKS
from nlp_bench.doctor.place import STATUSES


def test_exit_codes(cli: Cli, tmp_path: Path) -> None:
    assert "writable" in cli("doctor", "--system", "local", "--checks", "writable", "--runs", tmp_path).out
    captured = cli("doctor", "--system", "local", "--checks", "writable", "--runs", "/proc/no", code=1)
    assert "next: ls -ld /proc" in captured.out
    assert "1 failed; failed: writable" in captured.err
    for option, word in {"--checks": "nothing", "--system": "nowhere", "--model": "huge", "--nodes": "a b"}.items():
        assert main(["doctor", option, word]) == 2, option


@pytest.mark.parametrize("word", ["x", "-1", "0", "nan", "inf", "60x"])
@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "--nodes", "all", "--wait"],
        ["doctor", "--nodes", "all", "--join"],
        ["sync", "--wait", ".", "--poll"],
        ["watch", ".", "--every"],
        ["watch", ".", "--max-hours"],
    ],
    ids=" ".join,
)
def test_a_time_that_is_none_is_refused(words: list[str], word: str, cli: Cli) -> None:
    assert f"{words[-1]}: {word!r} is not a time above 0" in cli(*words, word, code=2).err


@pytest.mark.slow
def test_json(cli: Cli) -> None:
    found = cli("doctor", "--system", "local", "--data-path", "mock", "--format", "json", code=None).json
    assert found["schema"] == "nlp-bench/doctor/1"
    assert (found["system"], found["model"], found["nodes"]) == ("local", "tiny", None)
    assert [one["name"] for one in found["checks"]] == list(CHECKS)
    for one in found["checks"]:
        assert set(one) == {"name", "status", "summary", "evidence", "remedy", "elapsed_s"}
        assert one["status"] in STATUSES


def test_the_list(cli: Cli) -> None:
    lines = cli("doctor", "--list").out.splitlines()
    assert [line.split()[0] for line in lines] == list(CHECKS)
    assert [line.split(maxsplit=1)[1] for line in lines] == [check.well for check in CHECKS.values()]


def test_a_slurm_that_is_down_is_not_no_slurm(cli: Cli, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is known by its cluster's name must not be taken for one without Slurm while the controller is away."""
    monkeypatch.delenv("SLURM_CONF")
    said = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"
    program("scontrol", f'echo "{said}" >&2; exit 1')
    shown = cli("doctor", "--checks", "system,slurm,partition,job", code=1).out
    assert "Slurm is installed but does not answer" in shown
    assert shown.count("Unable to contact slurm controller") == 2
    assert main(["doctor", "--system", "local", "--checks", "slurm"]) == 1


def test_slurm_that_was_never_set_up(cli: Cli, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF")
    program("scontrol", 'echo "scontrol: fatal: Could not establish a configuration source" >&2; exit 1')
    assert "no Slurm here, and the run needs none" in cli("doctor", "--checks", "slurm").out
    assert main(["doctor", "--checks", "slurm", "--system", "juwels-booster", "--model", "13"]) == 1


@pytest.mark.slow
def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from nlp_bench.cli.main import main; main(['doctor', '--system', 'local', '--data-path', 'mock']);"
        "print([m for m in ('torch', 'pandas', 'matplotlib', 'numpy', 'megatron') if m in sys.modules])"
    )
    assert execute(sys.executable, "-c", code, check=True).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("allocated", "status"), [("96", "ok"), ("8", "failed"), ("", "skipped")])
def test_an_allocation(monkeypatch: pytest.MonkeyPatch, cli: Cli, allocated: str, status: str) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", allocated)
    monkeypatch.delenv("SLURM_NNODES", raising=False)
    said = cli("doctor", "--checks", "allocation", "--system", "juwels-booster", "--model", "175", code=None).out
    assert said.startswith(status)
