"""Several users on one machine, for real: nobody reads what another did not open, and nobody's files are in another's way."""

import fcntl
import json
import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
from support import users
from support.following import program
from support.forked_commands import Nlp
from support.ours import log_of_ours, write_our_run
from support.processes import execute
from support.users import ANNA, BERT, GROUP, ROOT, as_user, on_tmpfs, open_folder

from nlp_bench.config.resolve import resolve
from nlp_bench.launch.submission import Submission
from soak.commands import TINY

__all__ = ["open_folder"]


@pytest.fixture
def shared(open_folder: Path) -> Path:
    """Return a folder of both users' group, whose files belong to it (setgid)."""
    folder = open_folder / "shared"
    folder.mkdir()
    os.chown(folder, 0, GROUP) if os.getuid() == 0 else None
    folder.chmod(0o2775)
    return folder


@pytest.fixture
def run_as(shared: Path) -> Nlp:
    """Return how a user runs nlp-bench in the shared folder."""
    as_user(ANNA)  # skips where that cannot be
    return lambda uid, *words, **how: users.run_as(uid, shared, *words, **how)


def owned(folder: Path, uid: int) -> Path:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, GROUP)
    return folder


def runs(folder: Path) -> list[str]:
    """Write three runs, of different logs."""
    for number in range(3):
        (write_our_run(folder / f"run{number}") / "job.out").write_text("start\n" * number + log_of_ours())
    return [f"run{number}" for number in range(3)]


@pytest.mark.slow
def test_a_history_of_a_group_takes_the_runs_of_both(run_as: Nlp, shared: Path) -> None:
    first, second, third = runs(shared)
    for uid, run in ((ANNA, first), (BERT, second), (ANNA, third)):
        done = run_as(uid, "history", "add", run, "--file", "h", umask=0o002)
        assert done.returncode == 0, done.stderr
        assert run_as(BERT, "history", "list", "--file", "h").returncode == 0
    listed = json.loads(run_as(ANNA, "history", "list", "--file", "h", "--format", "json").stdout)
    assert len(listed["runs"]) == 3
    assert sorted(path.name for path in shared.iterdir() if path.is_file()) == ["h", "h.lock"]


@pytest.mark.slow
def test_a_reader_of_a_history_and_one_who_may_not_write_it_do_not_shut_out_its_owner(
    run_as: Nlp, shared: Path
) -> None:
    """SQLite left files of the reader beside it, which its owner could not write."""
    first, second, third = runs(shared)
    assert run_as(ANNA, "history", "add", first, "--file", "h").returncode == 0
    assert run_as(BERT, "history", "list", "--file", "h").returncode == 0
    refused = run_as(BERT, "history", "add", second, "--file", "h")
    assert (refused.returncode, "h: Permission denied; you have no right to it" in refused.stderr) == (1, True)
    assert run_as(ANNA, "history", "add", third, "--file", "h").returncode == 0
    (shared / "h").chmod(0o600)
    unread = run_as(BERT, "history", "list", "--file", "h")
    assert (unread.returncode, "h: Permission denied" in unread.stderr) == (1, True)


@pytest.mark.slow
def test_what_another_user_closed_is_a_row_and_the_rest_is_reported(run_as: Nlp, shared: Path) -> None:
    closed, log, _ = runs(shared)
    (shared / closed).chmod(0o700)
    (shared / log / "job.out").chmod(0o600)
    owned(shared / closed, ANNA)
    owned(shared / log, ANNA)
    done = run_as(BERT, "report", ".", "--format", "json")
    found = {run["source"]: (run["outcome"], " ".join(run["reasons"])[:60]) for run in json.loads(done.stdout)["runs"]}
    assert done.returncode == 1
    assert found == {
        "run0": ("REFUSED", "cannot read run0: Permission denied"),
        "run1": ("UNKNOWN", "cannot read run1/job.out: Permission denied; you have no right to it: "[:60]),
        "run2": ("VALID", ""),
    }
    assert "error" not in done.stderr
    for words in (("sync", "."), ("watch", "--once", ".")):
        assert "passed over: run0: Permission denied" in run_as(BERT, *words).stderr


def undecided(shared: Path) -> Path:
    """Write Anna's run of this machine, of which only the lock says whether it goes on."""
    write_our_run(run := shared / "run0")
    resolve(TINY, ask_scheduler=False).write(run)
    (run / "outcome.json").unlink()
    Submission(pid=1).write(run)
    return owned(run, ANNA)


@pytest.mark.slow
def test_how_another_users_run_ended_is_said_where_it_cannot_be_recorded(run_as: Nlp, shared: Path) -> None:
    undecided(shared)
    for words in (("sync", "."), ("watch", "--once", ".")):
        done = run_as(BERT, *words)
        assert done.returncode == 1
        assert re.search(r"run0: UNKNOWN: .*; but cannot write .*outcome.json: Permission denied; you", done.stderr)


def test_a_run_whose_lock_nobody_else_may_open_is_not_taken_for_ended(run_as: Nlp, shared: Path) -> None:
    """Only the lock says that a run of this machine goes on; the group may write its folder."""
    run = undecided(shared)
    run.chmod(0o2775)
    with (run / ".lock").open("w") as lock:
        (run / ".lock").chmod(0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "running here" in run_as(BERT, "sync", "run0").stdout
    assert not (run / "outcome.json").exists()


@pytest.mark.slow
def test_data_that_one_user_made_another_uses(run_as: Nlp, shared: Path) -> None:
    words = ("data", "--output", "d", "--documents", "20", "--vocab-size", "260")
    made = run_as(ANNA, *words, TMPDIR=str(shared), umask=0o002)
    assert (made.returncode, made.stdout.strip().endswith("(made)")) == (0, True), made.stderr
    again = run_as(BERT, *words)
    assert (again.returncode, again.stdout.strip().endswith("(already there)")) == (0, True), again.stderr
    # Torch makes TMPDIR/torchinductor_NAME where it is imported with its compiler, and loads code from it, whoever was there first.
    left = {path.name: path.stat().st_mode & 0o777 for path in shared.iterdir() if path.name != "d" and path.is_dir()}
    assert left.items() <= {f"nlp-bench-{ANNA}": 0o700}.items()


@pytest.mark.parametrize("mode", [0o777, 0o700])
def test_a_cache_that_somebody_else_made_first_is_not_used(shared: Path, mode: int) -> None:
    code = "import os; from nlp_bench.cli.main import VARIABLE, keep_caches_private as keep; keep(); print(os.environ[VARIABLE])"
    shared.chmod(0o1777)
    words = as_user(ANNA)
    squatted = shared / f"nlp-bench-{ANNA}"
    squatted.mkdir()
    squatted.chmod(mode)
    os.chown(squatted, BERT, GROUP)
    variables = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"], "TMPDIR": str(shared)}
    done = execute(*words, sys.executable, "-c", code, env=variables, check=True)
    folder = Path(done.stdout.strip()).parent
    assert (folder.parent, folder.stat().st_uid, folder.stat().st_mode & 0o777) == (shared, ANNA, 0o700)
    assert f"{squatted} is not yours alone" in done.stderr


@pytest.mark.slow
def test_data_that_one_may_only_read_have_their_index_in_the_working_folder(run_as: Nlp, shared: Path) -> None:
    """It was to be written beside them, which failed in the job; no option names another folder."""
    (shared / "theirs").mkdir(mode=0o755)
    for end in (".bin", ".idx"):
        (shared / f"theirs/text{end}").touch()
    owned(shared / "theirs", BERT)
    for uid, cache in ((ANNA, shared / "build/data/cache"), (BERT, shared / "theirs/cache")):
        words = ("check", "--model", "tiny", "--system", "local", "--data-path", "theirs/text", "--output", f"of{uid}")
        done = run_as(uid, *words, NLP_BENCH_ROOT=str(shared))
        assert done.returncode == 0, done.stderr
        assert json.loads((shared / f"of{uid}/run.json").read_text())["data"]["cache"] == str(cache)


def test_where_neither_the_data_nor_the_working_folder_may_be_written_the_run_keeps_the_index(
    run_as: Nlp, shared: Path
) -> None:
    """A colleague's finished checkout, or a data folder of the group with a cache of one of them, failed in the job."""
    (shared / "build/data/cache").mkdir(parents=True)
    owned(shared / "build", BERT)
    (mine := shared / "mine").mkdir()
    owned(mine, ANNA)
    done = run_as(ANNA, "check", "--system", "local", "--output", "mine", NLP_BENCH_ROOT=str(shared))
    assert done.returncode == 0, done.stderr
    assert json.loads((mine / "run.json").read_text())["data"]["cache"] == "cache"


@pytest.mark.slow
def test_data_of_a_user_whose_umask_shut_others_out_are_named(run_as: Nlp, shared: Path) -> None:
    """The doctor asked to have its own fault reported."""
    (shared / "build/data").mkdir(parents=True, mode=0o700)
    owned(shared / "build", BERT)
    said = run_as(ANNA, "doctor", "--system", "local", "--checks", "data", NLP_BENCH_ROOT=str(shared)).stdout
    assert "data_path: " in said
    assert "Permission denied; you have no right to it" in said
    assert "or take other data by --data-path" in said


STAND_INS = {
    "nlp-bench": 'echo "$@"',
    "setup_venv.sh": "",
    "../jube/nlp_benchmark.yaml": "",
    "jube.bash": """nlp_bench_find_jube() { :; }
jube() {
  case $1 in run) printf '>>>> %s\\n' '      id: 0' "  handle: ${OUTPATH:-$runs}" ;; status) echo "${JUBE_SAYS-FINISHED}" ;; esac
}
""",
}


def stand_ins(root: Path) -> Path:
    """Return run.sh of a checkout in `root` that runs nothing."""
    for folder in ("benchmark/env", "benchmark/jube", "reports/latest"):
        (root / folder).mkdir(parents=True)
    for name, text in STAND_INS.items():
        (root / "benchmark/env" / name).write_text(text)
    return Path(shutil.copy(ROOT / "benchmark/run.sh", root / "benchmark"))


def test_the_one_command_in_a_colleagues_checkout(shared: Path) -> None:
    """JUBE said "Permission denied" and no more, and where the group may write, the second one's whole run ended without a report."""
    before = as_user(BERT, GROUP)
    script = stand_ins(shared)
    owned(shared, ANNA)

    said = partial(execute, *before, "bash", script, env={"PATH": os.environ["PATH"]})
    refused = said()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"error: {shared}/benchmark/jube, which is of " in refused.stderr
    assert f"git config --global --add safe.directory {shared}/.git; git clone {shared};" in refused.stderr
    (shared / "benchmark/jube/nlp_benchmark_run").symlink_to("/purged")
    assert "nlp_benchmark_run is a link to /purged, which is not there" in said().stderr
    (shared / "benchmark/jube/nlp_benchmark_run").unlink()
    for folder in ("benchmark/jube", "reports"):
        (shared / folder).chmod(0o2775)
    done = said()
    assert (done.returncode, f"--output {shared}/reports/latest-{BERT}\n" in done.stdout) == (0, True), done


def test_tags_behind_the_word_of_jube_are_tags(tmp_path: Path) -> None:
    done = execute("bash", stand_ins(tmp_path), "--tag", "13", "rehearse", check=True)
    assert f"jube run {tmp_path}/benchmark/jube/nlp_benchmark.yaml --tag 13 rehearse\n" in done.stderr


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ("FINISHED", 0, ""),
        ("Welcome to JUBE 2.5.1\nFINISHED", 0, ""),
        ("Welcome to JUBE 2.5.1\nRUNNING", 1, ""),
        ("Benchmark not found", 1, "error: jube status /scratch/my runs --id 0 says Benchmark not found\n"),
    ],
)
def test_the_one_command_looks_where_jube_has_put_the_run(tmp_path: Path, status: str, code: int, said: str) -> None:
    """With another outpath in JUBE's file an older run of the checkout was shown as this one's result; a site's wrapper may print a banner."""
    variables = {**os.environ, "OUTPATH": "/scratch/my runs", "JUBE_SAYS": status}
    done = execute("bash", stand_ins(tmp_path), env=variables)
    waits = ["watch --continue --every 10 /scratch/my runs/000000"] if "RUNNING" in status else []
    shows = [] if said else [f"report /scratch/my runs/000000 --output {tmp_path}/reports/latest"]
    assert (done.returncode, done.stdout.split("\n\n")[0].splitlines()[1:], said in done.stderr) == (
        code,
        [*waits, *shows],
        True,
    ), done


def test_the_one_command_where_tmpdir_is_full(tmp_path: Path) -> None:
    """The run was trained to its end, and then run.sh ended with 1 without a word."""
    full = tmp_path / "full"
    full.mkdir()
    fill = ("sh", "-c", 'head -c 4096 /dev/zero > "$TMPDIR/x"; exec "$@"', "sh")
    words = [*on_tmpfs(full, "size=4k"), *fill, "bash", stand_ins(tmp_path)]
    done = execute(*words, env={**os.environ, "TMPDIR": str(full)})
    assert (done.returncode, f"--output {tmp_path}/reports/latest\n" in done.stdout) == (0, True), done
    assert list((tmp_path / "benchmark/jube/nlp_benchmark_run").iterdir()) == []


def test_the_one_command_without_find(tmp_path: Path) -> None:
    """A minimal image has none, and run.sh ended before JUBE began, without a word."""
    program(tmp_path, "find", "exit 127")
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = execute("bash", stand_ins(tmp_path), env=variables)
    assert (done.returncode, f"--output {tmp_path}/reports/latest\n" in done.stdout) == (0, True), done


def test_what_was_set_aside_of_another_user_is_in_nobodys_way(shared: Path) -> None:
    """Data that a group makes anew in turn: each can set the other's aside, and not remove it."""
    shared.chmod(0o2775)
    for name, uid in ((".d.old", ANNA), ("d", BERT), ("new", BERT)):
        (shared / name).mkdir()
        (shared / name / "x").write_text(name)
        if os.getuid() == 0:
            owned(shared / name, uid)
    code = "from pathlib import Path; from nlp_bench.files import replace_folder as put; put(Path('new'), Path('d'))"
    variables = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}
    done = execute(*as_user(BERT, GROUP), sys.executable, "-c", code, cwd=shared, env=variables)
    assert (done.returncode, (shared / "d/x").read_text()) == (0, "new"), done.stderr


def test_a_current_folder_that_has_gone_is_named(tmp_path: Path) -> None:
    words = f'mkdir gone; cd gone; rmdir ../gone; "{sys.executable}" -m nlp_bench check --model tiny --system local --output .'
    done = execute("bash", "-c", words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert "No such file or directory; the current folder was deleted: go to one that exists (cd)" in done.stderr
    assert "Traceback" not in done.stderr
