"""Submission at a site with wrappers, plugins and caches around Slurm: one job, and always a command that goes on."""

import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Cli
from support.following import Says, Site, ending_of, forgets, iterations, submission_of
from support.shims import python_script

from nlp_bench import safe_path
from nlp_bench.config.run import Limits, Run
from nlp_bench.config.scheduler import get_scheduler
from nlp_bench.doctor.scheduler import nodes_of
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import user_name
from nlp_bench.launch import once
from nlp_bench.launch.follow.sync import sync, sync_script
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.submission import Submission
from nlp_bench.outcome import Outcome

UNSURE = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1"


@pytest.fixture
def submit(run_dir: Path, cli: Cli) -> Cli:
    """Type the command that a person is told to type."""
    words = ["submit", "--run", run_dir / "run.json", "--run-dir", run_dir, "--no-follow"]
    return lambda *further, code=0: cli(*words, *further, code=code)


def test_a_run_in_reports_that_is_a_link_is_its_submitters(
    site: Site, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says, cli: Cli
) -> None:
    """A home with a small quota: the comment was of the link's name, no follower knew it for its own, and --max-pending was never kept."""
    for name in ("root", "scratch"):
        (tmp_path / name).mkdir()
    (tmp_path / "root/reports").symlink_to(tmp_path / "scratch")
    monkeypatch.setenv("NLP_BENCH_ROOT", str(tmp_path / "root"))
    cli("submit", "--run", run_dir / "run.json", "--no-follow", "--max-pending", "0.000001")
    (made,) = (tmp_path / "scratch/runs").iterdir()
    os.utime(made / "submit.json", (0, 0))
    says("PENDING", reason="Resources")
    assert sync(made)[1] == "PENDING (Resources); `scancel 7` was called: it has waited too long"
    assert site.numbers() == ["7"]


@pytest.mark.parametrize("further", [("--retries", "1"), ("--max-pending", "600")])
def test_what_no_follower_could_do_later_is_refused_before_the_queue(
    site: Site, monkeypatch: pytest.MonkeyPatch, submit: Cli, further: tuple[str, str]
) -> None:
    """Of files that seem to be another's (NFS without names of users) nobody resubmits or cancels: a lost node was told for ever."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    site.sbatch()
    assert "give --retries 0 --max-pending 0, or name a --run-dir elsewhere" in submit(*further, code=1).err
    assert not site.was_called()
    submit("--retries", "0", "--max-pending", "0")


@pytest.mark.parametrize(
    "answer", [UNSURE, "echo 'request 4711 accepted'", "kill -9 $$", "echo 'ssh: lost' >&2; exit 255"]
)
def test_an_unsure_answer_is_no_refusal(site: Site, run_dir: Path, submit: Cli, answer: str) -> None:
    """The job is made, but squeue shows it only later: the command that is named finds it, and makes no second one."""
    site.sbatch(f'make; mv "{site.jobs}/$number" "{site.tools}/late"; {answer}')
    said = submit(code=1).err
    assert "whether the job was queued is not known" in said
    assert f"nlp-bench submit --run {run_dir}/run.json --run-dir {run_dir}" in said
    assert "nothing was submitted" not in said
    assert submission_of(run_dir).is_intent
    ending, state = sync(run_dir)
    assert ending is None
    assert state.startswith(
        "whether the job was queued is not known; this looks for it before it submits one: nlp-bench submit"
    )
    (site.tools / "late").rename(site.jobs / "7")
    submit()
    assert site.numbers() == ["7"]
    assert submission_of(run_dir).job_ids == ["7"]
    assert submission_of(run_dir).unsure is None


def test_what_a_plugin_says_of_a_job_that_is_taken_is_shown(site: Site, submit: Cli) -> None:
    site.sbatch("make; echo 'sbatch: lua: moved to partition spare' >&2; echo $number")
    assert "sbatch took the job, and said: sbatch: lua: moved to partition spare" in submit().err


def test_commands_that_are_python_scripts_import_what_stands_beside_them(
    site: Site, run_dir: Path, submit: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They work in the shell; our PYTHONSAFEPATH took the module from them, in the job script as well."""
    monkeypatch.setenv(safe_path.NAME, safe_path.OURS)  # as at every command
    (site.tools / "sitelib.py").write_text("import subprocess, sys\n")
    answer = {
        name: f"sys.exit(subprocess.call(['bash', '{site.tools}/{name}.own', *sys.argv[1:]]))"
        for name in ("squeue", "sbatch")
    }
    for name in answer:
        (site.tools / name).rename(site.tools / f"{name}.own")
    for name, text in {**answer, "srun": "print(sys.argv[1])"}.items():
        python_script(site.tools / name, f"from sitelib import *\n{text}\n")
    submit()
    lines = (run_dir / "submit.job").read_text().splitlines()
    start = [line.removesuffix("&") for line in lines if safe_path.NAME in line]
    done = subprocess.run(["bash", "-c", "\n".join(start)], capture_output=True, text=True, check=False)
    assert done.stdout == f"--export=ALL,{safe_path.NAME}={safe_path.OURS}\n", done.stderr


def test_sbatch_may_come_to_its_own_last_word() -> None:
    """Where Slurm takes no more jobs (MaxJobCount), sbatch tries 15 times with longer and longer pauses, then refuses."""
    assert sum(range(1, 16)) + 30 < slurm.SUBMIT_TIMEOUT_S


def test_a_wrapper_that_loses_the_folder(site: Site, submit: Cli) -> None:
    """One that calls sbatch through ssh: the script is found, and the job begins in the run's folder."""
    site.sbatch('cd /; [[ -f ${!#} && $* == *" --chdir=/"* ]] || exit 1; make; echo "$number"')
    submit()


def test_a_repeat_at_once_waits_for_a_job_that_is_late(
    site: Site, monkeypatch: pytest.MonkeyPatch, submit: Cli
) -> None:
    """A cache of the site shows the job a minute later; two looks three seconds apart took that for none."""
    site.sbatch(f'make; mv "{site.jobs}/$number" "{site.tools}/late"; {UNSURE}')
    submit(code=None)
    looks: list[float] = []
    sleep = time.sleep

    def pause(seconds: float) -> None:
        if seconds < 3:  # of subprocess
            sleep(seconds)
            return
        looks.append(seconds)
        if len(looks) == 5:
            (site.tools / "late").rename(site.jobs / "7")

    monkeypatch.setattr(once, "SETTLE_S", 3.0)
    monkeypatch.setattr(time, "sleep", pause)
    assert re.search(r"looking for it for up to (300|299|298) s before it is submitted anew", submit().err)
    assert (site.numbers(), len(looks)) == (["7"], 5)


def test_behind_the_wait_the_same_command_submits(
    site: Site, run_dir: Path, submit: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.sbatch(UNSURE)  # Slurm never had it
    submit(code=1)
    monkeypatch.setattr(once, "UNSURE_S", 0)
    site.sbatch()
    submit()
    assert site.numbers() == ["7"]
    assert submission_of(run_dir).is_complete


@pytest.mark.parametrize(
    ("log", "code"), [("/site/out/slurm 7.out", "other-log"), ("{run_dir}/job.out", "lost-log"), ("", "lost-log")]
)
def test_a_log_that_a_wrapper_has_moved_is_named(
    site: Site, run_dir: Path, submit: Cli, monkeypatch: pytest.MonkeyPatch, log: str, code: str
) -> None:
    """`sbatch --output` of a site's wrapper overrides the script's: job.out "is gone", it was said, and run again it was again."""
    submit()
    log = log.format(run_dir=run_dir)
    shown = f"JobId=7 JobState=RUNNING Reason=None WorkDir={run_dir} StdErr={run_dir}/job.err StdIn=/dev/null StdOut={log} Power= "
    site.program("scontrol", f"echo '{shown}'")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    ending = ending_of(sync_script(run_dir, exit_status=0))
    assert (ending.outcome, ending.reasons[0].code) == (Outcome.INCOMPLETE, code)
    said = f"Slurm writes the log to {log}: a wrapper or plugin of the site sets --output"
    assert (ending.texts[0] == said) is (code == "other-log")


@pytest.mark.parametrize("comment", ["proj=abc;$comment", "${comment:0:32}", "charged to proj"])
def test_a_job_whose_comment_a_plugin_has_changed_is_found(
    site: Site, run_dir: Path, submit: Cli, comment: str
) -> None:
    site.sbatch(f"make; {UNSURE}", comment)
    submit()
    assert (submission_of(run_dir).job_ids, site.numbers()) == (["7"], ["7"])
    # Its record is lost, and what the plugin left does not always show that it is of this run.
    (run_dir / "submit.json").unlink()
    submit(code=int(comment == "charged to proj"))
    assert site.numbers() == ["7"]


@pytest.mark.slow
@pytest.mark.parametrize("comment", ["$comment", "proj"])
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_job_of_an_earlier_run_of_the_folder_is_not_taken_over(
    site: Site, run: Run, run_dir: Path, submit: Cli, comment: str, *, is_cut_off: bool
) -> None:
    """Seen behind `jube remove` on a real Slurm: the old script (time limit, exports) ran to VALID under the records of the new run."""
    site.sbatch(f"make; {UNSURE}" if is_cut_off else 'make; echo "$number"', comment)
    submit()
    old = (run_dir / "submit.job").read_text()
    record_of_old = (run_dir / "submit.json").read_text()
    shutil.rmtree(run_dir)
    run_dir.mkdir()
    replace(run, launch=replace(run.launch, timelimit="00:07:00")).write(run_dir)
    if is_cut_off:  # the folder stayed, and its run.json was replaced
        intent = {**json.loads(record_of_old), "job_ids": [], "job_id": None, "parts_left": 1}
        (run_dir / "submit.json").write_text(json.dumps(intent))
    for _ in range(2):
        said = submit(code=1).err
        assert "job 7, which waits or runs, was submitted from this folder, " in said
        assert "scancel 7, then repeat the same command: nlp-bench submit --run" in said
        assert site.numbers() == ["7"]
    # scancel came too late.
    ran = subprocess.run(
        ["bash", "-c", old], env={**os.environ, "SLURM_JOB_ID": "7"}, cwd=run_dir, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (ran.returncode, "Submitted batch job" in ran.stdout) == (1, False)
    assert "run.json is of another run than this job was submitted for" in ran.stderr
    assert not (run_dir / "outcome.json").exists()
    (site.jobs / "7").unlink()
    site.sbatch()
    submit()
    assert submission_of(run_dir).comment == site.comment("7")
    assert f"export NLP_BENCH_MADE_FOR={submission_of(run_dir).run_sha256}\n" in (run_dir / "submit.job").read_text()


@pytest.mark.slow
def test_the_same_run_typed_again_is_the_same_run(site: Site, tmp_path: Path, cli: Cli) -> None:
    site.program("scontrol", "echo 'ClusterName = x'")
    words = ["submit", "--model", "tiny", "--system", "slurm-sandbox", "--data-path", "mock", "--no-follow"]
    words += ["--run-dir", str(tmp_path / "new")]
    cli(*words)
    (tmp_path / "new/submit.json").unlink()
    time.sleep(1.1)  # it is resolved at another second
    assert "job 7, which was submitted from this folder before, is found" in cli(*words).err
    assert site.numbers() == ["7"]


def test_a_job_that_the_folder_had_before_is_not_taken(site: Site, run_dir: Path, submit: Cli) -> None:
    """It is a person's own, without a comment, or of a folder of this name that was removed."""
    site.put("5", run_dir, "(null)")
    site.sbatch(UNSURE)
    submit(code=1)
    assert submission_of(run_dir).before == ["5"]
    site.put("6", run_dir, "nlp-bench:0123456789abcdef-01234567")  # another submission's
    site.put("9", f"/auto{run_dir}", "proj")
    submit()
    assert submission_of(run_dir).job_ids == ["9"]


def test_a_chain_of_which_one_answer_is_unsure_goes_on(
    site: Site, run_dir: Path, monkeypatch: pytest.MonkeyPatch, submit: Cli
) -> None:
    site.sbatch(f'if [[ $number == 8 ]]; then {UNSURE}; fi; make; echo "$number"', "proj")
    said = submit("--chain", "3", "--timelimit", "01:00:00", code=1).err
    assert "--chain: 1 of 3 jobs are queued (7); " in said
    assert "whether the next job was queued is not known" in said
    monkeypatch.setattr(once, "UNSURE_S", 0)
    site.sbatch()
    submit()
    assert submission_of(run_dir).job_ids == ["7", "8", "9"]


def test_a_chain_that_the_queue_takes_in_part_is_completed_by_the_same_command(
    site: Site, run_dir: Path, submit: Cli
) -> None:
    """The limit of jobs of a user, say: that two of four were missing was said once, and never again.

    Each waits for the one before, whose name a plugin of the site may have made unique: two trained at once in one folder.
    """
    noted = f'make; grep -o -e "--dependency=[^ ]*" <<< "$*" | tail -n 1 >> {site.tools}/waits; echo "$number"'
    limit = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    site.sbatch(f'(($(ls {site.jobs} | wc -l) < 2)) || {{ echo "{limit}" >&2; exit 1; }}; {noted}')
    for further in (("--chain", "4", "--timelimit", "01:00:00", "--dependency", "afterok:5"), ()):
        said = submit(*further, code=1).err
        assert "--chain: 2 of 4 jobs are queued (7 8) and stay; then: sbatch refused" in said
        assert f"{limit}; once that is mended or over, this queues the rest: nlp-bench submit --run {run_dir}" in said
        assert said.endswith("to end those that are queued instead: scancel 7 8\n")
    site.sbatch(noted)
    submit()
    assert submission_of(run_dir).job_ids == ["7", "8", "9", "10"]
    waits = ["--dependency=afterok:5,singleton" + after for after in ("", ",afterany:7", ",afterany:8", ",afterany:9")]
    assert (site.tools / "waits").read_text().split() == waits


def test_ctrl_c_while_sbatch_hangs_leaves_it_open(
    site: Site, run_dir: Path, submit: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(slurm.Slurm, "submit", pressed)
        submit(code=130)
    assert submission_of(run_dir).unsure
    site.put("5", run_dir, str(submission_of(run_dir).comment))
    submit()
    assert site.numbers() == ["5"]


def test_a_list_in_another_form_is_no_answer(site: Site, submit: Cli) -> None:
    site.program("squeue", "echo 'nlp-bench|JOBID|COMMENT'; echo 'nlp-bench|7|x'")
    assert "not in the form that it was asked for" in submit(code=1).err
    assert site.numbers() == []


@pytest.mark.slow
def test_what_a_wrapper_leaves_in_the_background_is_not_waited_for(
    site: Site, run_dir: Path, submit: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A usage hook behind a firewall (curl &) held the pipe of an sbatch that had answered: 180 s without a word."""
    monkeypatch.setattr(slurm, "SUBMIT_TIMEOUT_S", 6)
    hook = "sleep 8 &"
    site.sbatch(f'{hook} make; echo "$number"')
    site.program("scontrol", f"{hook} echo 'JobId=7 JobState=RUNNING Reason=None WorkDir={run_dir} StdErr=x'")
    start = time.monotonic()
    submit()
    assert sync(run_dir) == (None, "RUNNING")
    assert time.monotonic() - start < 8


@pytest.mark.slow
def test_a_wrapper_that_is_late_is_ended_with_its_children(
    site: Site, monkeypatch: pytest.MonkeyPatch, submit: Cli
) -> None:
    """Only the wrapper was killed: its child submitted behind the word that nothing was."""
    monkeypatch.setattr(slurm, "SUBMIT_TIMEOUT_S", 2)
    site.sbatch("echo 'Submit anyway? [y/N]'; ( sleep 4; make ) & read -r; wait")
    said = submit(code=1).err
    assert "sbatch did not answer within 2 s and was ended; it had said: Submit anyway? [y/N]" in said
    time.sleep(4)
    assert site.numbers() == []


def test_a_question_of_a_wrapper_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch, submit: Cli) -> None:
    """Its input has an end, so that it can say no; it was a terminal, at which it waited with its question unseen."""
    monkeypatch.setattr(slurm, "SUBMIT_TIMEOUT_S", 5)
    ends, stdin = os.pipe(), os.dup(0)
    os.dup2(ends[0], 0)
    site.sbatch(
        "read -rp 'Submit anyway? [y/N] ' || { echo 'not submitted: 92 % of the project are used' >&2; exit 3; }"
    )
    try:
        said = submit(code=1).err
    finally:
        os.dup2(stdin, 0)
        for handle in (*ends, stdin):
            os.close(handle)
    assert "not submitted: 92 % of the project are used; nothing was submitted" in said


def await_a_retry(run: Run, run_dir: Path, says: Says) -> None:
    """Leave a run whose job 6 has lost its node, which the next look submits again."""
    replace(run, limits=Limits(retries=2)).write(run_dir)
    Submission(job_ids=["6"], comment=once.new_comment(run_dir)).write(run_dir)
    (run_dir / "submit.job").touch()
    says("NODE_FAIL")


def test_a_retry_whose_answer_is_unsure_is_not_refused(site: Site, run: Run, run_dir: Path, says: Says) -> None:
    await_a_retry(run, run_dir, says)
    site.sbatch(UNSURE, "proj")
    assert "whether the next attempt was queued is not known" in sync(run_dir)[1]
    assert not (run_dir / "outcome.json").exists()
    assert "looking for it for another" in sync(run_dir)[1]
    site.put("6", run_dir, "proj")
    site.put("8", run_dir, "proj")
    assert sync(run_dir) == (None, "submitted")
    assert (submission_of(run_dir).job_ids, len(submission_of(run_dir).attempts)) == (["8"], 1)


def test_a_retry_that_a_router_sends_to_another_cluster_is_asked_for_there(
    site: Site, run: Run, run_dir: Path, says: Says
) -> None:
    await_a_retry(run, run_dir, says)
    site.sbatch('make; echo "$number;big"')
    assert sync(run_dir)[1] == "attempt 2 of 3 is submitted, job 7"
    assert submission_of(run_dir).selection == {"SLURM_CLUSTERS": "big"}


KNOWS = """\
[[ $SLURM_{name} == {value} ]] || {{ echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }}
echo "JobId=7 JobName=x JobState=RUNNING Reason=None Restarts=0 ExitCode=0:0 BatchHost=n1 Comment=x WorkDir=$(dirname "$0")/../run StdErr=x"
"""


@pytest.mark.parametrize(
    ("variable", "answer"),
    [("big", "7"), ("", "7;big"), ("", "Submitted batch job 7 on cluster big"), ("other", "7;big")],
)
def test_a_job_of_another_cluster_is_asked_for_there(
    site: Site, run_dir: Path, submit: Cli, monkeypatch: pytest.MonkeyPatch, cli: Cli, variable: str, answer: str
) -> None:
    """SLURM_CLUSTERS was set in the terminal that submitted alone, or the site's router chose: the run counted as lost after five minutes."""
    site.program("scontrol", KNOWS.format(name="CLUSTERS", value="big"))
    site.program("sacct", "echo 'JobID|State|ExitCode|Submit|WorkDir'")
    monkeypatch.setenv("SLURM_CLUSTERS", variable)
    site.sbatch(f"make; echo '{answer}'")
    submit()
    assert submission_of(run_dir).selection == {"SLURM_CLUSTERS": "big"}
    for here in ("", "small"):
        monkeypatch.setenv("SLURM_CLUSTERS", here)
        assert sync(run_dir) == (None, "RUNNING")
    os.utime(run_dir / "submit.json", (0, 0))
    (run_dir / "job.out").write_text(iterations(10))
    os.utime(run_dir / "job.out", (time.time() - 5000,) * 2)
    assert "SLURM_CLUSTERS=big scontrol show job 7" in cli("watch", "--once", run_dir, code=None).err
    site.program("scontrol", "echo \"scontrol: error: No cluster 'big' known by database.\" >&2; exit 1")
    silent = "Slurm gave no answer that counts: SLURM_CLUSTERS=big scontrol: scontrol: error: No cluster 'big' known by database."
    assert sync(run_dir) == (None, silent)
    # An older record: as in this terminal.
    site.program("scontrol", KNOWS.format(name="CLUSTERS", value="big"))
    Submission(job_ids=["7"], comment=submission_of(run_dir).comment).write(run_dir)
    assert sync(run_dir)[1].startswith("Slurm does not know the job")


def test_another_configuration_decides_nothing(
    site: Site, run_dir: Path, monkeypatch: pytest.MonkeyPatch, submit: Cli
) -> None:
    """It is named, not loaded: the record may have come with somebody else's folder, and a slurm.conf names programs and libraries."""
    site.program("scontrol", KNOWS.format(name="CONF", value="/site/big.conf"))
    site.program("sacct", "echo 'JobID|State|ExitCode|Submit|WorkDir'")
    monkeypatch.setenv("SLURM_CONF", "/site/big.conf")
    submit()
    monkeypatch.delenv("SLURM_CONF")
    os.utime(run_dir / "submit.json", (0, 0))
    ending, state = sync(run_dir)
    assert ending is None
    assert state == (
        "Slurm gave no answer that counts: the run was submitted with SLURM_CONF=/site/big.conf: set that, and ask again"
    )
    monkeypatch.setenv("SLURM_CONF", "/site/big.conf")
    assert sync(run_dir) == (None, "RUNNING")
    intent = replace(submission_of(run_dir), job_ids=[], parts_left=1)
    intent.write(run_dir)
    monkeypatch.delenv("SLURM_CONF")
    assert "the run was submitted with SLURM_CONF=/site/big.conf: set that, and ask again" in submit(code=1).err
    assert site.numbers() == ["7"]


PARTITION = "PartitionName={name} AllowGroups=ALL Default={default} MaxNodes=8 MaxTime=1-00:00:00 State=UP TotalNodes=8"


MAINTENANCE = "Slurm is in maintenance until 18:00"


@pytest.mark.parametrize("answer", [f"echo '{MAINTENANCE}' >&2; exit 1", f"echo '{MAINTENANCE}'", ""])
def test_a_slurm_in_maintenance_or_without_scontrol_is_not_no_slurm(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Cli, answer: str
) -> None:
    """The run would have trained on the login node; `doctor` said failed. A container may have sbatch alone."""
    monkeypatch.delenv("NLP_BENCH_SYSTEM", raising=False)
    told = f"`scontrol show config`: {MAINTENANCE}; try again later, or train on this machine"
    site.program("scontrol", answer)
    if not answer:
        (site.tools / "scontrol").chmod(0o644)
        monkeypatch.setenv("PATH", str(site.tools))
        told = "sbatch is here (PATH), but scontrol is not, or may not be executed: load or bind it"
    for command in (["check", "--model", "tiny"], ["submit", "--model", "tiny", "--data-path", "mock"]):
        said = cli(*command, code=2).err
        assert told in said
        assert "--system local" in said
    printed = cli("doctor", "--checks", "system", code=None).out
    assert answer or "Slurm is installed but does not answer (scontrol is not on PATH)" in printed
    cli("check", "--model", "tiny", "--system", "local")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("slurm_load_ctl_conf error: Protocol authentication error", "; munge refuses: it does not run here, its key is another, or the clocks"),
        ("scontrol: restricted to operators on login nodes", "; scontrol itself refuses, for sinfo answers: nlp-bench needs `scontrol show`"),
    ],
)  # fmt: skip
def test_a_slurm_that_refuses_this_machine_says_why(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Cli, answer: str, told: str
) -> None:
    """To wait, to look at the controllers or to change SLURM_CONF, as was said, does not help."""
    monkeypatch.setenv("SLURM_CONF", str(site.tools / "sinfo"))
    site.program("sinfo", "echo 'booster up'")
    site.program("scontrol", f"echo '{answer}' >&2; exit 1")
    said = cli("submit", "--model", "tiny", "--system", "slurm-sandbox", "--data-path", "mock", code=2).err
    assert told in said
    assert "SLURM_CONF" not in said
    assert told[2:] in " ".join(cli("doctor", "--system", "slurm-sandbox", "--checks", "slurm", code=None).out.split())


@pytest.mark.parametrize(
    ("named", "is_doubted"), [("juwels-booster", True), ("slurm-sandbox", False), ("dgx-a100", False)]
)
def test_the_system_of_another_machine_is_doubted(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Cli, tmp_path: Path, named: str, *, is_doubted: bool
) -> None:
    """Two machines share a home, whose .profile names one: a VALID run was labelled with the other."""
    monkeypatch.setenv("NLP_BENCH_SYSTEM", named)
    partition = PARTITION.format(name="booster", default="YES")
    site.program("scontrol", f"echo 'ClusterName = nlpbench-sandbox'; echo '{partition}'")
    doubt = (
        f"NLP_BENCH_SYSTEM names {named}, whose [detect] does not match this machine, but that of slurm-sandbox does"
    )
    words = ("--data-path", "mock", "--run-dir", tmp_path / "run", "--no-follow")
    assert (f"nlp-bench: warning: {doubt}" in cli("submit", *words).err) is is_doubted
    said = cli("doctor", "--checks", "system").out
    assert (doubt in said, "warning  system" in said) == (is_doubted, is_doubted), said


def test_a_hidden_partition_is_none_that_is_missing(site: Site, run: Run) -> None:
    seen, hidden = PARTITION.format(name="booster", default="YES"), PARTITION.format(name="hidden", default="NO")
    site.program("scontrol", f"echo '{seen}'; case \" $* \" in *' --all '*) echo '{hidden}' ;; esac")
    slurm.Slurm().check_limits(replace(run, launch=replace(run.launch, queue="hidden", timelimit="01:00:00")))
    with pytest.raises(UsageError, match=r"Slurm has no partition 'x' \(it has: booster, hidden\)"):
        slurm.Slurm().check_limits(replace(run, launch=replace(run.launch, queue="x")))


def test_options_stand_before_the_words_that_they_are_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind them scontrol takes them for words where POSIXLY_CORRECT is set: "Slurm does not answer"."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
    answer = "NodeName=n1 NodeAddr=10.0.0.1 State=IDLE"
    names = 'if [[ $2 == hostnames ]]; then printf "%s\\n" ${3//,/ }; exit; fi'
    site.program(
        "scontrol",
        f"{names}; [[ $1 == --oneliner && $* != *' '-* ]] && printf '{answer}\\nJobId=7 JobState=RUNNING\\n'",
    )
    site.program(
        "squeue", "[[ $* == --jobs=7* ]] && echo 'nlp-bench|7'"
    )  # the argument of --jobs may be left out: "7" is a word
    job = slurm.Slurm().query("7")
    assert job
    assert (job.word, slurm.Slurm().is_queued("7")) == ("RUNNING", True)
    assert slurm.Slurm().addresses("") == ["10.0.0.1"]
    assert [node.address for node in nodes_of("n1")] == ["10.0.0.1"]


def test_the_account_of_the_terminal_is_handed_on(site: Site, monkeypatch: pytest.MonkeyPatch, submit: Cli) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "proj1")
    monkeypatch.setenv("SBATCH_QOS", "x")
    site.sbatch(f'make; echo "$SBATCH_ACCOUNT" > {site.tools}/account; echo "$number"')
    assert "not handed on, for run.json does not know them: SBATCH_QOS\n" in submit().err
    assert (site.tools / "account").read_text() == "proj1\n"


def test_a_job_that_sacct_counts_as_the_first_part_of_a_heterogeneous_one(site: Site) -> None:
    rows = "7+1|FAILED|1:0||\\n7+0|TIMEOUT|0:0|2026-01-01T00:00:00|/x"
    forgets(site.tools, f"printf 'JobID|State|ExitCode|Submit|WorkDir\\n{rows}\\n'")
    found = slurm.Slurm().query("7")
    assert found
    assert (found.word, found.source) == ("TIMEOUT", "sacct")


BESIDE = """\
echo 'nlp-bench|JOBID|START_TIME|END_TIME|NODELIST'
case "$*" in *--jobs=7*) nodes=n1 ;; *--nodelist=n1*) nodes= ;; *) exit 1 ;; esac
while IFS='|' read -r number rest; do
  if [[ ! $nodes || $number == 7 ]]; then echo "nlp-bench|$number|$rest"; fi
done << 'END'
7|2026-01-01T10:00:00|2026-01-01T11:00:00|n1
5|2026-01-01T09:00:00|2026-01-01T10:00:00|n1
6|2026-01-01T09:00:00|2026-01-01T10:00:01|n1
70|2026-01-01T10:59:59|NONE|n1
7+1|2026-01-01T10:00:00|2026-01-01T11:00:00|n1
8|2026-01-01T11:00:00|2026-01-01T12:00:00|n1
9|N/A|N/A|
12_3|2026-01-01T10:30:00|2026-01-01T10:31:00|n1
END
"""


def test_jobs_that_shared_the_nodes_for_a_time(site: Site) -> None:
    """The one before and the one behind did not, and another group of the same job is none; of a list in another form nothing is known."""
    site.program("squeue", BESIDE)
    assert slurm.Slurm().beside("7") == ["6", "70", "12_3"]
    site.program("squeue", "echo JOBID; echo 7")
    assert slurm.Slurm().beside("7") == []


def test_a_job_whose_folder_is_spelled_by_the_automounter(site: Site, run_dir: Path, submit: Cli) -> None:
    """Its comment was replaced as well: while it ran, the number counted as another job's, and the run as lost."""
    (run_dir.parent / "other").mkdir()
    submit()
    os.utime(run_dir / "submit.json", (0, 0))
    for work_dir in (f"/auto{run_dir}", f"{run_dir.parent}/other/../run"):
        shown = f"JobId=7 JobName=x JobState=RUNNING Reason=None Restarts=0 ExitCode=0:0 BatchHost=n1 Comment=proj WorkDir={work_dir}"
        site.program("scontrol", f"echo '{shown} StdErr=x'")
        assert sync(run_dir) == (None, "RUNNING")
    site.program("scontrol", f"echo '{shown.replace('/run', '/other')} StdErr=x'")
    assert "its number is another job's by now" in ending_of(sync(run_dir)).text()


def test_a_job_without_scontrol_names_the_module(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """`module purge` of the job script takes Slurm's commands away where Slurm is a module."""
    monkeypatch.setenv("PATH", str(site.tools))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1,3]")
    with pytest.raises(
        NlpBenchError, match=r"scontrol is not on PATH in the job.* name Slurm's module in software\.modules"
    ):
        slurm.Slurm().addresses("")


def test_a_terminal_without_slurms_commands_names_the_module(
    site: Site, run_dir: Path, submit: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new terminal, in which the module is not loaded: the controller was blamed."""
    submit()
    monkeypatch.setenv("PATH", str(site.tools))
    assert (
        sync(run_dir)[1] == "Slurm gave no answer that counts: scontrol is not on PATH: load the site's module of Slurm"
    )


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("selection", {"SLURM_CLUSTERS": 5}, "selection holds what is no text"), ("selection", [], "selection"), ("unsure", 5, "unsure"), ("before", [{}], "")],
)  # fmt: skip
def test_a_damaged_record_is_named(
    site: Site, run_dir: Path, submit: Cli, cli: Cli, field: str, value: object, said: str
) -> None:
    site.sbatch(UNSURE)
    submit(code=None)
    path = run_dir / "submit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    done = cli("sync", run_dir, code=None)
    assert "Traceback" not in done.err
    assert (said or "whether the job was queued is not known") in done.out + done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
@pytest.mark.parametrize(
    ("answer", "name"), [(UNSURE, "submit.json"), ("exit 1", ".lock"), ('make; echo "$number"', "")]
)
def test_a_colleagues_submission_that_was_cut_off_is_not_submitted_again(
    site: Site, run_dir: Path, submit: Cli, answer: str, name: str
) -> None:
    site.sbatch(answer)
    submit(code=None)
    for path in run_dir.iterdir():
        os.chown(path, 65534, 65534)
    before = site.numbers()
    said = submit(code=UsageError.exit_code if name else 0).err
    refusal = f"{run_dir / name} belongs to {user_name(65534)}, who may have a job for this folder"
    assert (refusal if name else "nothing was submitted again") in said
    assert site.numbers() == before


def test_a_folder_with_line_feeds_in_its_name_is_listed(site: Site, run_dir: Path, submit: Cli) -> None:
    """squeue prints it as it is, over several lines, beside the jobs of others."""
    site.put("3", "/x\ny|z", "(null)")
    site.program(
        "squeue",
        f"echo 'nlp-bench|JOBID|WORK_DIR|nlp-bench|COMMENT'; for job in {site.jobs}/*; do echo -n 'nlp-bench|'; cat $job; done",
    )
    jobs = get_scheduler("slurm").jobs(ended=True)
    assert [(job.job_id, job.work_dir, job.comment) for job in jobs] == [("3", "/x\ny|z", "(null)")]
    submit()
    assert submission_of(run_dir).job_ids == ["8"]
