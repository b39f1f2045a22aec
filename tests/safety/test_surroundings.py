"""Every subcommand without the environment, with a home that may not be read, by a user whom nobody knows: words, no traceback."""

import ast
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.command import Cli
from support.following import offline, undecided
from support.ours import seal_run, write_our_run
from support.processes import execute
from support.published import published_log, write_run
from support.users import ANNA, ROOT, as_user, open_folder, run_as

from nlp_bench.config.scheduler import Job
from nlp_bench.launch.follow import runs
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.scheduler.slurm import Slurm
from soak.commands import COMMANDS

__all__ = ["open_folder"]
SOURCE = str(ROOT / "src")
SCRIPT = """
import sys
from nlp_bench.cli.main import main
for words in sys.argv[1].split("\\n"):
    try:
        code = main(words.split(" "))
    except BaseException as error:
        code = repr(error)
    print("ended:", words.split(" ")[0], code, flush=True)
"""


LIGHT = ("check", "measure", "report", "compare", "history", "bundle", "verify", "export", "plan", "doctor")
"""Those that end within a second; build, data, rehearse and the trainings were tried by hand."""


def ends(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[dict[str, str], str]:
    """Run the light commands in one process; return how each ended, and what was said."""
    commands = []
    for command in (one for one in COMMANDS if one.name in LIGHT):
        here = folder / command.name
        here.mkdir()
        command.prepare(here)
        commands.append(" ".join(command.words).replace("HERE", str(here)))
    commands += [f"sync {folder}", f"watch --once {folder}", "completion bash"]
    if words:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 12345, 12345)
    program = [*words, sys.executable, "-c", SCRIPT, "\n".join(commands)]
    done = execute(*program, env={"PYTHONPATH": SOURCE, **environment}, cwd="/", input="", timeout=200)
    assert "Traceback" not in done.stderr, done.stderr
    told = [line.split(" ", 2)[1:] for line in done.stdout.splitlines() if line.startswith("ended: ")]
    assert [name for name, _ in told] == [one.split(" ")[0] for one in commands], done.stderr
    found = dict(told)
    assert found["doctor"] in {"0", "1"}
    print(done.stdout)  # shown where a test fails
    return {**found, "doctor": "0 or 1"}, done.stderr


EXPECTED = dict.fromkeys((*LIGHT, "completion"), "0") | {"sync": "1", "watch": "1", "doctor": "0 or 1"}
"""Nothing is submitted below the folder, and what the doctor finds depends on the machine."""


@pytest.mark.slow
def test_without_a_single_variable(open_folder: Path) -> None:
    found, _ = ends([], open_folder, {})
    assert found == EXPECTED


@pytest.mark.slow
def test_a_user_whom_nobody_knows(open_folder: Path) -> None:
    found, _ = ends(as_user(12345), open_folder, {"PATH": os.environ["PATH"]})
    assert found == EXPECTED


@pytest.mark.slow
def test_a_home_that_may_not_be_read_is_said_once_and_passed_over(open_folder: Path) -> None:
    home = open_folder / "home"
    home.mkdir()
    words = [] if os.getuid() else as_user(12345)
    below = open_folder / "work"
    below.mkdir()
    home.chmod(0)
    try:
        found, said = ends(words, below, {"HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home)})
    finally:
        home.chmod(0o700)
    assert found == EXPECTED
    assert said.count(f"{home}/.config/nlp-bench may not be read: what lies there is passed over") == 1


@pytest.mark.slow
def test_out_of_an_archive_it_says_what_to_do(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", ROOT / "src", "nlp_bench")
    words = "import sys; from nlp_bench.cli.main import main; sys.exit(main(['check', '--model', '13', '--offline']))"
    isolated = "-P" if sys.version_info >= (3, 11) else "-s"
    done = execute(sys.executable, isolated, "-c", words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": archive})
    assert done.returncode == 2
    assert "cannot run out of an archive" in done.stderr
    assert "pip install" in done.stderr


@pytest.mark.slow
def test_a_report_is_written_where_matplotlib_finds_no_folder_for_its_cache(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(published_log())
    (tmp_path / "work").mkdir()
    code = (
        "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/proc/none']; import sys; "
        "from nlp_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ("report", tmp_path / "a.log", "--sequence-length", "2048", "--output", tmp_path / "out")
    variables = {"PYTHONPATH": SOURCE, "HOME": "/proc/none"}
    done = execute(sys.executable, "-c", code, *words, cwd=tmp_path / "work", env=variables)
    assert done.returncode == 0, done.stderr
    assert "no plots: matplotlib finds no writable folder for its cache: set MPLCONFIGDIR to one" in done.stderr
    assert {".html", ".csv"} <= {path.suffix for path in (tmp_path / "out").rglob("*")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "error", "said"),
    [
        ("PYTHONPATH", "ImportError('no numpy')", "matplotlib of {0} cannot be loaded by this Python ({1}), mostly because it is another Python's: no numpy; PYTHONPATH names {0}: unset"),
        ("PATH", "ImportError('no numpy')", "matplotlib cannot be loaded (no numpy): pip install -U matplotlib"),
        ("PATH", "RuntimeError('half')", "matplotlib cannot be loaded (half): pip install -U matplotlib"),
    ],
)  # fmt: skip
def test_with_a_matplotlib_that_cannot_be_loaded_all_but_the_plots_is_written(
    tmp_path: Path, variable: str, error: str, said: str
) -> None:
    """One of an older numpy than the one that is installed. It is tried once: numpy prints lines about it each time."""
    (tmp_path / "a.log").write_text(published_log())
    broken = tmp_path / "site"
    (broken / "matplotlib").mkdir(parents=True)
    (broken / "matplotlib/__init__.py").write_text(f"print('tried')\nraise {error}\n")
    code = f"import sys; sys.path.insert(0, {str(broken)!r}); from nlp_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    variables = {"PYTHONPATH": SOURCE, "PATH": ""}
    variables[variable] += f":{broken}"
    ended = partial(execute, sys.executable, "-c", code, cwd=tmp_path, env=variables)
    done = ended("report", "a.log", "--sequence-length", "2048", "--output", "out")
    expected = said.format(broken, ".".join(map(str, sys.version_info[:2])))
    assert f"no plots: {expected}" in done.stderr
    assert (done.returncode, done.stdout.count("tried")) == (0, 1)
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".csv", ".html", ".json", ".md"]
    done = ended("plan", "--model", "13", "--system", "juwels-booster", "--nodes", "1", "--plot", "plan.svg")
    assert f"nlp-bench: error: --plot plan.svg: {expected}" in done.stderr


def test_no_empty_folder_stays_in_the_current_one(tmp_path: Path) -> None:
    """It is Python's last resort for temporary files where neither TMPDIR nor /tmp can be written."""
    code = (
        "import os, tempfile; tempfile._candidate_tempdir_list = lambda: [os.getcwd()]; "
        "from nlp_bench.cli.main import keep_caches_private as keep; keep(); assert os.listdir()"
    )
    execute(sys.executable, "-c", code, cwd=tmp_path, env={"PYTHONPATH": SOURCE}, check=True)
    assert not list(tmp_path.iterdir())


def said_with(folder: Path, words: tuple[str, ...], code: int = 1, **variables: str) -> str:
    """Return what a command says, in an environment that looks finished, with `variables`: it ends with `code`, and without a traceback."""
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "venv/bin/python").symlink_to(sys.executable)
    (folder / "venv/nlp-bench.key").touch()
    (folder / "x.log").write_text(published_log())
    environment = {**os.environ, "NLP_BENCH_VENV": str(folder / "venv"), **variables}
    done = execute(sys.executable, "-P", "-m", "nlp_bench", *words, cwd=folder, env=environment, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == code
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("words", [("report", "x.log"), ("doctor", "--checks", "environment"), ("launch", ".")])
def test_a_package_of_another_python_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A module of the site puts a numpy of its own Python on PYTHONPATH, before the one that is installed here."""
    (tmp_path / "module/numpy").mkdir(parents=True)
    (tmp_path / "module/numpy/__init__.py").write_text(
        "try:\n    import numpy._compiled\nexcept ImportError as error:\n    raise ImportError('READ THIS\\n') from error\n"
    )
    offline("tiny", "local", data_path="mock").write(tmp_path)
    said = said_with(tmp_path, words, PYTHONPATH=f"{tmp_path}/module:{os.environ.get('PYTHONPATH', '')}")
    assert f"numpy of {tmp_path}/module cannot be loaded by this Python" in said
    assert "No module named 'numpy._compiled'" in said
    assert f"PYTHONPATH names {tmp_path}/module: unset PYTHONPATH, or unload the module that sets it" in said


@pytest.mark.parametrize(
    ("text", "version"), [("cuda = '11.8'\n__version__ = '2.4.1+cu118'\n", "2.4.1+cu118"), ("", "unknown")]
)
def test_a_torch_of_pythonpath_is_named_with_its_own_version(tmp_path: Path, text: str, version: str) -> None:
    """It has no dist-info, and may not even load: doctor and the records named the installed one."""
    torch = tmp_path / "module/torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')\n")
    (torch / "version.py").write_text(text)
    path = f"{tmp_path}/module:{os.environ.get('PYTHONPATH', '')}"
    said = said_with(tmp_path, ("doctor", "--checks", "environment", "--verbose"), 0, PYTHONPATH=path)
    assert f"PYTHONPATH leads to torch {version} in {tmp_path}/module, which trains instead of the installed" in said
    assert "next: unset PYTHONPATH, or unload the module that sets it" in said


def test_a_numpy_of_pythonpath_has_its_own_version_in_the_records(tmp_path: Path) -> None:
    (tmp_path / "module/numpy").mkdir(parents=True)
    (tmp_path / "module/numpy/__init__.py").touch()
    (tmp_path / "module/numpy/version.py").write_text('version = "1.99.0"\n__version__ = version\n')
    code = "from nlp_bench.packages import installed_version; print(installed_version('numpy'))"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}/module:{SOURCE}"}
    assert execute(sys.executable, "-c", code, env=environment, check=True).stdout == "1.99.0\n"


def test_a_python_that_is_too_old_is_named() -> None:
    """That of an image, by `python -m`: it was a TypeError of whatever came first."""
    code = "import sys; sys.version_info = (3, 9, 1); import nlp_bench"
    done = execute(sys.executable, "-c", code, env={"PYTHONPATH": SOURCE})
    assert done.returncode == 1
    assert done.stderr.startswith("nlp-bench: error: it needs Python 3.10 to 3.13; ")
    ast.parse((ROOT / "src/nlp_bench/__init__.py").read_text(), feature_version=(3, 6))


def test_another_nlp_bench_of_pythonpath_is_named(tmp_path: Path) -> None:
    """A module that is loaded behind `source activate.bash` put a colleague's before it: its numbers were printed without a word."""
    (own := tmp_path / "own").mkdir()
    (own / "src/nlp_bench").mkdir(parents=True)
    words = ("report", "--dialects")
    said = said_with(own, words, 0, PYTHONPATH=SOURCE, NLP_BENCH_ROOT=str(own))
    assert (
        f"warning: this is the nlp-bench of {SOURCE}, where PYTHONPATH leads, not the activated one of {own}/" in said
    )
    assert "warning" not in said_with(tmp_path, words, 0, PYTHONPATH=SOURCE, NLP_BENCH_ROOT=str(ROOT))


@pytest.mark.parametrize("words", [("report", "x.log"), ("doctor", "--checks", "environment")])
def test_a_library_that_is_too_old_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A module for gcc 4 brings its libstdc++ on LD_LIBRARY_PATH: 60 lines of traceback, and doctor found all well."""
    (tmp_path / "gcc 4").mkdir()
    (tmp_path / "versions").write_text("GLIBCXX_3.4 { global: x; };\nCXXABI_1.3 { global: y; };\n")
    (tmp_path / "old.c").write_text("int x, y;\n")
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("no C compiler")
    library = tmp_path / "gcc 4/libstdc++.so.6"
    versions = f"-Wl,-soname,libstdc++.so.6,--version-script,{tmp_path}/versions"
    execute(compiler, "-shared", "-fPIC", versions, "-o", library, tmp_path / "old.c", check=True)
    said = said_with(tmp_path, words, LD_LIBRARY_PATH=f"{tmp_path}/gcc 4")
    assert f"LD_LIBRARY_PATH brings {library}, too old for numpy" in said
    assert "unset LD_LIBRARY_PATH, or unload the gcc or conda module that sets it" in said


def test_the_home_of_another_python_is_dropped(tmp_path: Path) -> None:
    """Python would end with a fatal error of its own, before the first line of ours."""
    (tmp_path / "x.log").write_text(published_log())
    command = ("bash", ROOT / "benchmark/env/nlp-bench", "report", "x.log", "--sequence-length", "2048")
    variables = {"PYTHONHOME": str(tmp_path), "NLP_BENCH_VENV": str(tmp_path), "NLP_BENCH_PYTHON": sys.executable}
    done = execute(*command, cwd=tmp_path, env={**os.environ, **variables}, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "MEASURED" in done.stdout + done.stderr or "VALID" in done.stdout


def test_without_a_folder_for_temporary_files_the_remedy_is_said(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have none that can be written."""
    bundle, none = tmp_path / "evidence.tar.gz", FileNotFoundError(errno.ENOENT, "No usable temporary directory found")
    cli("bundle", write_run(tmp_path / "run"), "--output", bundle)
    monkeypatch.setattr(tempfile, "gettempdir", Mock(side_effect=none))
    for words in (("verify", bundle), ("bundle", "--redact-report", tmp_path / "run")):
        said = cli(*words, code=1).err
        assert "there is no folder for temporary files" in said
        assert "set TMPDIR to a folder that exists, is writable and has room" in said
    said = "".join(cli("doctor", "--checks", "disk,writable,clock", "--runs", tmp_path, code=1)[1:])
    assert "the check itself broke" not in said
    assert "1 failed" in said
    assert "failed   writable  there is no folder for temporary files" in said
    assert "next: set TMPDIR to a folder" in said


OF_NO_FOLDER = (
    ("check", "--model", "tiny", "--offline"),
    ("plan", "--model", "13", "--system", "juwels-booster", "--nodes", "2"),
    ("submit", "--model", "tiny", "--print"),
)
"""Commands that need nothing of the current folder."""


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stand in a folder that is deleted, as a purge of the scratch does; return a finished run of another one."""
    run, folder = write_our_run(tmp_path / "run"), tmp_path / "gone"
    seal_run(run)
    folder.mkdir()
    monkeypatch.delenv("NLP_BENCH_ROOT", raising=False)
    with monkeypatch.context() as there:
        there.chdir(folder)
        folder.rmdir()
        yield run


def test_absolute_paths_are_read_where_the_current_folder_was_deleted(gone: Path, cli: Cli) -> None:
    made, rates = gone.parent / "e.tar.gz", "steady 36361.59 tokens/s"
    packed = (("bundle", "--output", made, gone), ("verify", made))
    for words in (("report", gone), ("measure", gone), *OF_NO_FOLDER, *packed):
        done = cli(*words)
        assert "No such file" not in done.out + done.err
        assert words[0] not in {"bundle", "verify"} or rates in done.out


def test_what_a_deleted_current_folder_cannot_take_is_said(gone: Path, cli: Cli) -> None:
    said = "evidence.tar.gz: No such file or directory; the current folder was deleted: go to one that exists (cd)"
    assert said in cli("bundle", gone, code=1).err


@pytest.mark.slow
def test_a_current_folder_that_may_not_be_read_is_passed_over(open_folder: Path) -> None:
    """As after sudo -u: the folder is another user's and closed."""
    closed = open_folder / "closed"
    (closed / "benchmark/jube").mkdir(parents=True)
    shutil.copytree(ROOT / "benchmark/models", closed / "benchmark/models")
    shutil.copy(ROOT / "benchmark/jube/nlp_benchmark.yaml", closed / "benchmark/jube")
    (closed / "benchmark").chmod(0o700)
    for words in OF_NO_FOLDER:
        done = run_as(ANNA, closed, *words, groups=())
        assert done.returncode == 0, done.stderr
        assert f"{closed}/benchmark may not be read: what lies there is passed over; go to another" in done.stderr


@pytest.mark.slow
def test_a_run_that_is_moved_while_it_is_watched_is_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    for name in ("a", "b"):
        undecided(tmp_path / "runs" / name)
    asked = list[object]()

    def query(*words: object, **_: object) -> Job:
        asked.append(words)
        if len(asked) == 3:
            (tmp_path / "runs/a").rename(tmp_path / "archived")
        return slurm.job("RUNNING" if len(asked) < 6 else "TIMEOUT", job_id="7")

    monkeypatch.setattr(runs, "UNSEEN_S", 0.5)
    monkeypatch.setattr(Slurm, "query", query)
    said = cli("watch", "--every", "0.01", tmp_path / "runs", code=1).err
    assert said.count(f"{tmp_path}/runs/a is gone or was moved; name its new place") == 1
