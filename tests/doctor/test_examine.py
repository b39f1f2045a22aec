"""Every check comes to an end, and its answer has a word, a sentence and a next command."""

import threading
from unittest.mock import Mock

import pytest
from support.examining import Make, Program

from nlp_bench.config.request import Request
from nlp_bench.doctor.checks import CHECKS, Check, Examined, chosen, counts, examine, is_bad, table
from nlp_bench.doctor.place import STATUSES, failed, look_around, ok, skipped, together, warning
from nlp_bench.errors import NlpBenchError, UsageError

QSUB = "echo 'sbatch: This system uses PBS Pro. Please use qsub'"
STARTS = "printf '%0999d\\nsbatch: Job 2 to start at 2026-01-01T00:00:00 using 4 processors on nodes node1 in partition booster\\n' 0 >&2"


@pytest.mark.parametrize(
    ("scontrol", "sbatch", "status"),
    [
        ("echo 'ClusterName = c'", STARTS, {"slurm": "ok", "job": "ok"}),
        ("echo 'ClusterName = c'", QSUB, {"slurm": "ok", "job": "warning"}),
        (QSUB, QSUB, {"slurm": "failed", "job": "warning"}),
    ],
)
def test_a_stand_in_of_a_scheduler_that_has_gone_is_no_slurm(
    program: Program, monkeypatch: pytest.MonkeyPatch, scontrol: str, sbatch: str, status: dict[str, str]
) -> None:
    """They end with status 0: doctor said that sbatch would take the job."""
    monkeypatch.delenv("SLURM_CONF")
    for name in ("srun", "squeue", "scancel"):
        program(name, "")
    program("scontrol", scontrol)
    program("sbatch", sbatch)
    place = look_around(Request(system="slurm-sandbox", model="tiny", data_path="mock"))
    assert {one.name: one.finding.status for one in examine(place, ["slurm", "job"])} == status


@pytest.mark.slow
def test_every_check_answers_here(place: Make) -> None:
    found = examine(place(), CHECKS)
    assert [one.name for one in found] == list(CHECKS)
    for one in found:
        assert one.finding.status in STATUSES
        assert one.finding.summary
        assert "broke" not in one.finding.summary
        assert bool(one.finding.remedy) == (one.finding.status in {"warning", "failed"}), one


def test_a_check_that_breaks_is_a_finding(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = {"disk": ZeroDivisionError("by nothing"), "clock": NlpBenchError("runs: wrong; name another")}
    for name, error in errors.items():
        monkeypatch.setitem(CHECKS, name, Check("", Mock(side_effect=error)))
    disk, clock, limits = examine(place(), ["disk", "clock", "limits"])
    assert disk.finding.status == clock.finding.status == "failed"
    assert disk.finding.summary == "the check itself broke: ZeroDivisionError: by nothing"
    assert clock.finding.summary == "runs: wrong; name another"
    assert limits.finding.status in {"ok", "warning"}
    assert is_bad([disk])
    assert not is_bad([limits])


@pytest.mark.slow
def test_a_check_that_hangs_does_not_hide_the_others(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file server that is gone: statvfs does not return, and no signal ends it."""
    is_over = threading.Event()
    monkeypatch.setattr("nlp_bench.doctor.checks.WITHIN_S", 2.0)
    monkeypatch.setitem(CHECKS, "disk", Check("", lambda _: is_over.wait(300)))
    disk, limits = examine(place(), ["disk", "limits"])
    is_over.set()
    assert disk.finding.status == "failed"
    assert disk.finding.summary.startswith("no answer within 2 s: ")
    assert limits.finding.status in {"ok", "warning"}


def test_checks_are_chosen_by_name() -> None:
    assert chosen(None) == list(CHECKS)
    assert chosen("disk, jube,disk") == ["disk", "jube"]
    with pytest.raises(UsageError, match=r"'jub' is no check; did you mean jube\?"):
        chosen("jub")
    with pytest.raises(UsageError) as unknown:
        chosen("spoon")
    assert str(unknown.value).count("gpu_health") == 1
    with pytest.raises(UsageError, match="names no check"):
        chosen(" , ")


def test_several_findings_become_their_worst() -> None:
    mild, bad = warning("slow", "seen: slow", remedy="wait"), failed("broken", "seen: broken", remedy="mend it")
    both = together([ok("", "a fact"), mild, bad, ok("all is well")])
    assert (both.status, both.summary, both.remedy) == ("failed", "broken", "mend it")
    assert both.evidence == ("a fact", "seen: slow", "seen: broken", "slow")
    assert together([ok("", "a fact"), skipped("no"), ok("all is well")]) == ok("all is well", "a fact")
    assert together([skipped("no")]) == skipped("no")


def test_the_table_shows_what_is_wrong_and_hides_what_is_not() -> None:
    found = [
        Examined(name="disk", finding=ok("room", "9 GiB"), elapsed_s=0.0),
        Examined(name="jube", finding=failed("gone", "PATH\x1b[31m\nline", remedy="get it"), elapsed_s=0.0),
        Examined(name="gpus", finding=skipped("none here"), elapsed_s=0.0),
    ]
    assert table(found).splitlines() == [
        "ok       disk  room",
        "failed   jube  gone",
        "               PATH [31m line",  # a terminal is never told what to do by a stranger's text
        "               next: get it",
        "skipped  gpus  none here",
    ]
    assert "9 GiB" in table(found, is_verbose=True)
    assert counts(found) == "1 ok, 1 skipped, 1 failed; failed: jube"
    assert counts(found[2:]) == "1 skipped; nothing was looked at"
