"""What a look at runs says, and in which form; the real JUBE and Slurm are in tests/faults."""

import json
import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.command import Cli
from support.following import Says, undecided

from nlp_bench.config.run import Run
from nlp_bench.launch.follow.progress import TAIL_BYTES, BoundTracker, progress
from nlp_bench.launch.submission import Submission
from nlp_bench.train.checkpoint.folder import clear, publish

LINE = "[default0]: iteration {:8d}/      40 | consumed samples: 480 | elapsed time per iteration (s): 0.5000 | lm loss: 1.0E+00 |\n"


@pytest.fixture
def submitted(tmp_path: Path, says: Says) -> Path:
    says("RUNNING")
    return undecided(tmp_path)


def test_only_the_end_of_a_log_is_read(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    with log.open("w") as stream:
        stream.write(LINE.format(1))
        stream.truncate(5_000_000_000)  # a sparse file: reading it whole would take seconds and gigabytes
    assert progress(run, log) is None
    with log.open("a") as stream:
        stream.write("x" * TAIL_BYTES + "\n" + LINE.format(10) + LINE.format(20)[:40])
    found = progress(run, log)
    assert found is not None
    tokens = run.batch.global_batch_size * run.batch.sequence_length
    assert found.text() == f"iteration 10/40, {tokens / 0.5:.0f} tokens/s, 15 s left"


@pytest.mark.parametrize("words", [("--save", "/kept"), ("--save=/kept",)])
def test_a_run_with_checkpoints_may_be_silent_for_longer(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "job.out").write_text(LINE.format(10))
    saving = replace(run, tuning=replace(run.tuning, train_args=words))
    limits = [found.stall_limit_s for one in (run, saving) if (found := progress(one, tmp_path / "job.out"))]
    assert limits == [run.limits.stall_least_s, run.limits.stall_start_s]


def test_a_stall_is_seen_from_outside(run: Run, submitted: Path, cli: Cli) -> None:
    log = submitted / "job.out"
    log.write_text(LINE.format(10))
    os.utime(log, (time.time() - 1000, time.time() - 1000))
    assert "iteration 10/40" in (said := cli("watch", "--once", submitted, code=1).err)
    assert (
        "STALLED: the log has not grown for more than 300 s; RUNNING: see scontrol show job 7, or end it with scancel 7"
        in said
    )
    assert run.limits.stall_least_s == 300
    record = json.loads(cli("watch", "--once", "--format", "json", submitted, code=1).out)
    assert (record["is_stalled"], record["next"]) == (True, ["scontrol show job 7", "scancel 7"])


@pytest.mark.parametrize(("silent_s", "is_stalled"), [(3000, False), (4000, True), (-4000, True)])
def test_a_job_that_stands_still_behind_its_last_line_is_told_too(
    submitted: Path, cli: Cli, silent_s: float, *, is_stalled: bool
) -> None:
    log = submitted / "job.out"
    log.write_text(LINE.format(40))
    os.utime(log, (time.time() - silent_s, time.time() - silent_s))
    said = cli("watch", "--once", submitted, code=1).err
    assert ("STALLED: the log has not grown for more than 3600 s; RUNNING" in said) == is_stalled


def test_the_queues_reason_is_shown(submitted: Path, says: Says, cli: Cli) -> None:
    says("PENDING", reason="QOSMaxJobsPerUserLimit")
    record = json.loads(cli("watch", "--once", "--format", "json", submitted, code=1).out)
    assert (record["state"], record["outcome"], record["next"]) == ("PENDING (QOSMaxJobsPerUserLimit)", None, [])


def test_a_chain_whose_job_has_no_line_yet_says_how_far_it_is(run: Run, submitted: Path, says: Says, cli: Cli) -> None:
    kept = submitted / "checkpoints"
    chained = replace(run, tuning=replace(run.tuning, train_args=("--save", str(kept), "--load", str(kept))))
    chained.write(submitted)
    Submission(comment="nlp-bench:1", job_ids=["6", "7", "8"]).write(submitted)
    (submitted / "job.out").write_text(f"Submitted batch job 6\n{LINE.format(30)}Submitted batch job 7\n")
    path = clear(kept, 30)
    for name in ("metadata.json", "nlp-bench.json"):
        (path / name).write_text("{}")
    publish(kept, 30, None)
    assert cli("watch", "--once", submitted, code=1).err.endswith(": RUNNING, job 2 of 3, 30/40 saved\n")
    (submitted / "starts").mkdir()
    start = submitted / "starts/7-0-1795886692-4577-1.json"
    start.write_text("{}")
    os.utime(start, (time.time() - 330,) * 2)
    said = cli("watch", "--once", submitted, code=1).err
    assert said.endswith(": RUNNING, job 2 of 3, 30/40 saved, starting for more than 4 min\n")
    says("PENDING", reason="Dependency")
    assert cli("watch", "--once", submitted, code=1).err.endswith(": PENDING (Dependency), 30/40 saved\n")


def test_an_end_says_what_to_type(submitted: Path, says: Says, cli: Cli) -> None:
    says("OUT_OF_MEMORY")
    record = json.loads(cli("watch", "--format", "json", submitted, code=1).out)
    assert record["schema"] == "nlp-bench/watch/1"
    assert record["outcome"] == "OUT_OF_MEMORY"
    assert record["next"][0] == f"nlp-bench submit --run {submitted}/run.json --mem 0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("age_s", "said"), [(0, "15 s left"), (1000, "STALLED: the log has not grown for more than 300 s")]
)
def test_a_silent_controller_is_said_beside_the_progress(
    submitted: Path, says: Says, cli: Cli, age_s: float, said: str
) -> None:
    """Once, however long the log is silent as well."""
    log = submitted / "job.out"
    log.write_text(LINE.format(10))
    os.utime(log, (time.time() - age_s,) * 2)
    says(None)
    first, last = cli("watch", "--every", "0.6", "--max-hours", "0.0005", submitted, code=3).err.splitlines()
    assert first.endswith(f"{said}; Slurm does not answer")
    assert "0.0005 hours are over; go on with the same command" in last


def test_what_failed_before_is_not_new(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """run.sh showed a refused step of an older run of JUBE during each later one."""

    def fails(run: str) -> None:
        step = tmp_path / run / "000003_train"
        (step / "work").mkdir(parents=True)
        (tmp_path / run / "configuration.xml").touch()
        (step / "error").write_text("")
        (step / "work/stderr").write_text("nlp-bench: error: data: no such file\n")

    def goes_on(_: float) -> None:
        fails("000001")
        process.communicate()

    fails("000000")
    monkeypatch.setattr("nlp_bench.launch.follow.watch.time.sleep", goes_on)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        said = cli("watch", "--new", "--while-pid", process.pid, tmp_path, code=1).err
    assert re.findall(r"\d{6}(?=/000003_train: )", said) == ["000001"]


def test_a_damaged_folder_does_not_keep_the_watch_for_ever(submitted: Path, cli: Cli) -> None:
    (submitted / "submit.json").write_text("{")
    assert cli("watch", "--every", "0.01", submitted, code=1).err.count("error:") == 1


def timed(first: int, last: int, dice: np.random.Generator) -> str:
    return "".join(
        LINE.format(n).replace("0.5000", f"{0.5 + 0.01 * dice.standard_normal():.4f}") for n in range(first, last + 1)
    )


def test_a_watched_run_says_when_it_has_been_measured_well_enough(submitted: Path, cli: Cli) -> None:
    record = json.loads((submitted / "run.json").read_text())
    record["training"] |= {"iterations": 40, "log_interval": 1}
    (submitted / "run.json").write_text(json.dumps(record))
    dice, log = np.random.default_rng(1), submitted / "job.out"
    log.write_text(timed(1, 60, dice))
    assert "known to" not in cli("watch", "--once", submitted, code=1).err
    said = cli("watch", "--once", "--until", "5%", submitted, code=1).err
    early = re.search(r"known to \+-([\d.]+) %, about (\d+) iterations for 5 %\n", said)
    assert early
    assert float(early[1]) > 5
    assert 100 < int(early[2]) < 250
    log.write_text(timed(1, 300, dice))
    printed = cli("watch", "--once", "--until", "5%", submitted, code=1).err
    assert f": enough for 5 %: see nlp-bench report - < {log}, or end it with scancel 7\n" in printed
    shown = cli("watch", "--once", "--until", "5%", "--format", "json", submitted, code=1).out
    assert json.loads(shown)["until"]["is_enough"] is True


def test_a_log_that_grows_is_read_on_and_gives_what_the_whole_gives(run: Run, tmp_path: Path) -> None:
    run = replace(run, training=replace(run.training, log_interval=1))
    log, text = tmp_path / "job.out", timed(1, 200, np.random.default_rng(2))
    log.write_text("")
    growing = BoundTracker(run, log, "5%")
    for part in range(0, len(text), 1000):
        with log.open("a") as stream:
            stream.write(text[part : part + 1000])
        found = growing.look()
    assert found is not None
    assert found == BoundTracker(run, log, "5%").look()
    assert found.last_iteration == 200
    log.write_text(timed(1, 50, np.random.default_rng(3)))
    assert (anew := growing.look()) is not None
    assert anew.last_iteration == 50


def test_a_share_that_is_none_is_refused(submitted: Path, cli: Cli) -> None:
    assert "--until: '1' is no share in percent" in cli("watch", "--once", "--until", "1", submitted, code=2).err
