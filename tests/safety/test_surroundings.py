"""Every subcommand without the environment, with a home that may not be read, by a user whom nobody knows: words, no traceback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.published import published_log
from support.users import ROOT, as_user, open_folder

from soak.commands import COMMANDS

__all__ = ["open_folder"]
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
    done = subprocess.run(
        [*words, sys.executable, "-c", SCRIPT, "\n".join(commands)], env={"PYTHONPATH": str(ROOT / "src"), **environment},
        cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    told = [line.split(" ", 2)[1:] for line in done.stdout.splitlines() if line.startswith("ended: ")]
    assert [name for name, _ in told] == [one.split(" ")[0] for one in commands], done.stderr
    found = dict(told)
    assert found["doctor"] in {"0", "1"}
    print(done.stdout)  # shown where a test fails
    return {**found, "doctor": "0 or 1"}, done.stderr


EXPECTED = dict.fromkeys((*LIGHT, "completion"), "0") | {"sync": "1", "watch": "1", "doctor": "0 or 1"}
"""Nothing is submitted below the folder, and what the doctor finds depends on the machine."""


def test_without_a_single_variable(open_folder: Path) -> None:
    found, _ = ends([], open_folder, {})
    assert found == EXPECTED


def test_a_user_whom_nobody_knows(open_folder: Path) -> None:
    found, _ = ends(as_user(12345), open_folder, {"PATH": os.environ["PATH"]})
    assert found == EXPECTED


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


def test_out_of_an_archive_it_says_what_to_do(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", ROOT / "src", "nlp_bench")
    words = "import sys; from nlp_bench.cli.main import main; sys.exit(main(['check', '--model', '13', '--offline']))"
    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": archive}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 2
    assert "cannot run out of an archive" in done.stderr
    assert "pip install" in done.stderr


def test_a_report_is_written_where_matplotlib_finds_no_folder_for_its_cache(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(published_log())
    (tmp_path / "work").mkdir()
    code = (
        "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/proc/none']; import sys; "
        "from nlp_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["report", str(tmp_path / "a.log"), "--sequence-length", "2048", "--output", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path / "work", capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "HOME": "/proc/none"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no PNG: matplotlib finds no writable folder for its cache: set MPLCONFIGDIR to one" in done.stderr
    assert {".html", ".csv", ".svg"} <= {path.suffix for path in (tmp_path / "out").rglob("*")}


def test_no_empty_folder_stays_in_the_current_one(tmp_path: Path) -> None:
    """It is Python's last resort for temporary files where neither TMPDIR nor /tmp can be written."""
    code = (
        "import os, tempfile; tempfile._candidate_tempdir_list = lambda: [os.getcwd()]; "
        "from nlp_bench.cli.surroundings import keep_caches_private as keep; keep(); assert os.listdir()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT / "src")}, check=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["logs/source", "cli/registry"])
def test_a_compiled_file_that_a_full_disk_cut_is_named_with_the_remedy(tmp_path: Path, module: str) -> None:
    """Python before 3.12.8 leaves it, and every later call was a traceback: EOFError: marshal data too short."""
    cache = tmp_path / "a cache"
    words = [sys.executable, str(ROOT / "src/nlp_bench/__main__.py"), "report", "--dialects"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def called() -> "subprocess.CompletedProcess[str]":
        environment = kept | {"PYTHONPYCACHEPREFIX": str(cache)}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=100)

    assert called().returncode == 0
    (compiled,) = cache.rglob(f"nlp_bench/{module}.*.pyc")
    compiled.write_bytes(compiled.read_bytes()[:200])
    done = called()
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    subprocess.run(["bash", "-c", done.stderr.strip().rpartition("repeat: ")[2]], check=True, timeout=100)
    assert called().returncode == 0
