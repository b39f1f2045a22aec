"""Faults that were named as left by earlier rounds, and those of a fifth."""

from pathlib import Path

import pytest
from support.ours import write_our_run
from support.published import published_log

import nlp_bench
from nlp_bench.cli.main import main
from nlp_bench.errors import UsageError
from nlp_bench.evidence.make import make_bundle
from nlp_bench.evidence.manifest import Options
from nlp_bench.evidence.verify import Demands, verify


def test_logs_beside_run_folders_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_our_run(tmp_path / "all/run")
    for name in ("slurm-1.out", "train.log.gz"):
        (tmp_path / "all" / name).write_text(published_log())
    main(["report", str(tmp_path / "all")])
    assert (
        f"passed over: {tmp_path}/all/slurm-1.out and 1 more: logs beside run folders; name it"
        in capfd.readouterr().err
    )


def test_a_bundle_says_which_links_it_leaves_out_and_has_the_log(tmp_path: Path) -> None:
    run = write_our_run(tmp_path / "run")
    (tmp_path / "elsewhere.err").write_text("what went wrong\n")
    (run / "job.err").unlink(missing_ok=True)
    (run / "job.err").symlink_to(tmp_path / "elsewhere.err")
    made = make_bundle([str(run)], tmp_path / "evidence", Options(), with_ranks=False, force=False)
    assert "runs/001: left out: job.err, a link; a bundle holds files only" in made.remarks
    (run / "job.out").rename(tmp_path / "job.out")
    (run / "job.out").symlink_to(tmp_path / "job.out")
    with pytest.raises(
        UsageError, match=r"job\.out is a link, and a bundle holds files only; put the log itself there"
    ):
        make_bundle([str(run)], tmp_path / "another", Options(), with_ranks=False, force=False)


def test_too_few_bytes_for_a_bundle_are_named(tmp_path: Path) -> None:
    made = make_bundle(
        [str(write_our_run(tmp_path / "run"))], tmp_path / "e.tar.gz", Options(), with_ranks=False, force=False
    )
    with pytest.raises(UsageError, match="unpacks to more than 1 bytes; --max-bytes N allows more"):
        verify(made.path, Demands(), max_bytes=1)


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_16_without_its_mark_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str) -> None:
    (tmp_path / "x.log").write_bytes(published_log().encode(f"utf-16-{order}"))
    assert main(["report", str(tmp_path / "x.log")]) != 0
    assert f"UTF-16 is not read; convert it: iconv -f UTF-16{order.upper()} -t UTF-8" in "".join(capsys.readouterr())


def test_the_api_takes_no_word_for_a_switch(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(published_log())
    log = nlp_bench.read_log(tmp_path / "x.log", sequence_length=2048)
    with pytest.raises(UsageError, match="same_workload: 'no' is neither True nor False"):
        nlp_bench.compare(log, log, same_workload="no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="model: 13 is neither a text nor a path; give it in quotes"):
        nlp_bench.plan(13, "juwels-booster")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pattern: 5 is no text"):
        nlp_bench.read_log(tmp_path / "x.log", pattern=5)  # type: ignore[arg-type]
