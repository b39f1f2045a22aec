"""The end of a log that another machine has written, which a network file system shows late."""

import threading
import time
from pathlib import Path

import pytest
from support.command import Cli
from support.ours import seal_run, write_our_run

from nlp_bench.cli import runs


@pytest.fixture
def cut(tmp_path: Path) -> bytes:
    """A VALID run whose job.out shows 700 bytes; return the rest."""
    seal_run(write_our_run(tmp_path / "run"))
    whole = (tmp_path / "run/job.out").read_bytes()
    (tmp_path / "run/job.out").write_bytes(whole[:700])
    return whole[700:]


@pytest.mark.slow
def test_measure_waits_for_the_end_of_the_log(cut: bytes, tmp_path: Path, cli: Cli) -> None:
    """Seen on NFS: JUBE's row stayed INVALID for ever, for a run that report called VALID a little later."""

    def show() -> None:
        time.sleep(1.5)
        with (tmp_path / "run/job.out").open("ab") as log:
            log.write(cut)

    thread = threading.Thread(target=show)
    thread.start()
    shown = cli("measure", tmp_path / "run")
    thread.join()
    assert shown.out.startswith("outcome: VALID\n")
    said = f"job.out has 700 of {700 + len(cut)} bytes; waiting up to 60 s for the rest to be seen from here"
    assert said in shown.err


def test_a_log_that_stays_cut_is_not_called_another_ones(
    cut: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(runs, "LOG_WAIT_S", 0.0)
    shown = cli("measure", tmp_path / "run")
    assert shown.out.startswith("outcome: INVALID\n")
    text = f"job.out has 700 of {700 + len(cut)} bytes: cut, or not wholly seen from here yet; repeat the same command"
    assert f"INVALID: the chain of evidence is broken: {text}; " in shown.err
    assert "remedy: put the original of the file that is named back, or repeat the command" in shown.err


def test_what_was_measured_before_a_log_was_purged_stays(tmp_path: Path, cli: Cli) -> None:
    run = tmp_path / "run"
    seal_run(write_our_run(run))
    cli("measure", run)
    result = (run / "result.json").read_bytes()
    (run / "job.out").unlink()
    shown = cli("measure", run)
    assert f"{run}/result.json stays: job.out, from which it was measured, is not there" in shown.err
    assert "outcome: INVALID\n" in shown.out
    assert (run / "result.json").read_bytes() == result
