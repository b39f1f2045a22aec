"""setup_venv.sh: killed or without a package index, no half environment is ever used, and nothing of others is replaced.

The script is the real one; Python's venv and pip are stand-ins (a real environment takes minutes), but for one test.
"""

import fcntl
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.command import Cli
from support.processes import NLP_BENCH, ROOT, execute
from support.users import as_user, on_tmpfs, open_folder

pytestmark = pytest.mark.slow

__all__ = ["open_folder"]
SCRIPT = ROOT / "benchmark/env/setup_venv.sh"
PYTHON = """#!/bin/bash
# `python ... -m venv --clear DIR` makes a folder with a stand-in for pip; everything else is done by the real Python.
[[ " $* " == *" -m venv "* ]] || exec "{real}" "$@"
[[ $DIE_AT != venv-begin ]] || kill -9 $PPID
rm -rf "${{@: -1}}"
mkdir -p "${{@: -1}}/bin"
[[ $DIE_AT != venv-end ]] || kill -9 $PPID
cp "{pip}" "${{@: -1}}/bin/pip"
printf '#!/bin/bash\n[[ $1 != */bin/pip ]] || exec bash "$@"\nexec "{real}" "$@"\n' > "${{@: -1}}/bin/python"
echo "VIRTUAL_ENV='${{@: -1}}'" > "${{@: -1}}/bin/activate"
chmod +x "${{@: -1}}/bin/python"
"""
PIP = """#!/of/the/path/that/it/was/made/as/python
folder=$(dirname "$(dirname "$0")")
for word; do [[ $word == *==* || $word == *\\[* || $word == uv ]] && what=$word; done
case $what in torch*) step=torch ;; uv) step=uv ;; *) step=rest ;; esac
echo "half" > "$folder/$step"
[[ $DIE_AT != "$step" ]] || kill -9 $PPID
if [[ $FAIL_AT == "$step" ]]; then
  echo "ERROR: No matching distribution found for $what" >&2
  exit 1
fi
echo "$what" > "$folder/$step"
"""
TOOL = """#!/bin/bash
[[ $DIE_AT != {name}-begin ]] || kill -9 $PPID
"{real}" "$@"
[[ $DIE_AT != {name}-end ]] || kill -9 $PPID
"""
"""Of ln and mv, which put the link into its place."""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with stand-ins for Python, pip, ln and mv."""
    folder = tmp_path / "tools"
    folder.mkdir()
    texts = {"pip": PIP, "python": PYTHON.format(real=sys.executable, pip=folder / "pip")}
    texts |= {name: TOOL.format(name=name, real=shutil.which(name)) for name in ("ln", "mv")}
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def setup(
    tmp_path: Path, tools: Path | None, *words: str, code: int = 0, before: Sequence[str] = (), script: Path = SCRIPT,
    **variables: str,
) -> str:  # fmt: skip
    """Run the script, behind the words `before`, for an environment in `tmp_path`; return what it says on stderr.

    Without `tools` Python and pip are the real ones.
    """
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NLP_BENCH_VENV": str(tmp_path / "env/.venv")}
    environment["NLP_BENCH_PYTHON"] = sys.executable
    if tools:
        environment |= {"NLP_BENCH_PYTHON": str(tools / "python"), "PATH": f"{tools}:{environment['PATH']}"}
    command = [*before, "bash", str(script), "--system", "local", *words]
    done = execute(*command, env={**environment, **variables}, timeout=200)
    assert done.returncode == code, done.stderr
    return done.stderr


def is_whole(venv: Path) -> bool:
    """Whether the link leads to an environment in which nothing is half."""
    steps = {name: (venv / name).read_text() for name in ("torch", "rest") if (venv / name).exists()}
    return (venv / "nlp-bench.key").exists() and len(steps) == 2 and "half\n" not in steps.values()


KILLS = ("venv-end", "torch", "rest", "ln-end", "mv-begin", "mv-end")


def test_killed_anywhere_the_next_call_completes_it(tmp_path: Path, tools: Path) -> None:
    venv = tmp_path / "env/.venv"
    for step in KILLS:
        shutil.rmtree(tmp_path / "env", ignore_errors=True)
        setup(tmp_path, tools, DIE_AT=step, code=-9)
        assert is_whole(venv) or not venv.exists(), step
        setup(tmp_path, tools)
        assert is_whole(venv), step
        assert re.fullmatch(r"\.venv-[0-9a-f]{12}", os.readlink(venv))  # noqa: PTH115  # the word, as it was written
        assert not os.path.lexists(tmp_path / "env/.venv.new")


def test_a_half_environment_is_not_activated(tmp_path: Path, tools: Path) -> None:
    setup(tmp_path, tools, DIE_AT="rest", code=-9)
    (half,) = (path for path in (tmp_path / "env").iterdir() if path.is_dir())
    script = f'source "{ROOT}/benchmark/env/activate.bash" --system local'
    environment = {**os.environ, "NLP_BENCH_VENV": str(half), "NLP_BENCH_PYTHON": sys.executable}
    done = execute("bash", "-c", script, env=environment)
    assert done.returncode == 1
    assert "is not set up; run: bash benchmark/env/setup_venv.sh" in done.stderr


def test_a_folder_without_symbolic_links_is_named(tmp_path: Path, tools: Path) -> None:
    (tools / "ln").write_text("#!/bin/bash\nexit 1\n")
    python = (tools / "python").read_text()
    (tools / "python").write_text(
        python.replace("[[ $DIE_AT != venv-begin ]]", "exit 1\n[[ $DIE_AT != venv-begin ]]", 1)
    )
    said = setup(tmp_path, tools, code=1)
    assert "takes no symbolic links (CIFS, exFAT): set NLP_BENCH_VENV" in said


@pytest.mark.parametrize(
    ("step", "what"), [("uv", r"torch==[\d.]+\+cpu, nor uv"), ("rest", "the packages of pyproject.toml")]
)
def test_pip_fails(tmp_path: Path, tools: Path, step: str, what: str) -> None:
    if step == "uv":  # pip has no CPU build either
        (tools / "pip").write_text(PIP.replace('$FAIL_AT == "$step"', "$step == torch || $step == uv"))
    said = setup(tmp_path, tools, FAIL_AT=step, code=1)
    assert "ERROR: No matching distribution found" in said
    assert re.search(f"error: pip could not install {what}", said)
    assert "PIP_INDEX_URL" in said.splitlines()[-1]
    assert not os.path.lexists(tmp_path / "env/.venv")
    (tools / "pip").write_text(PIP)
    setup(tmp_path, tools)
    assert is_whole(tmp_path / "env/.venv")


def test_a_python_that_enters_a_container_is_named(tmp_path: Path, tools: Path) -> None:
    """Tykky's, say: the environment's Python was a link to nothing, and the package index was blamed."""
    with (tools / "python").open("a") as wrapper:
        wrapper.write('ln -sf /container/bin/python3 "${@: -1}/bin/python"\n')
    said = setup(tmp_path, tools, code=1).splitlines()[-1]
    assert re.search(
        rf"error: \S+/bin/python does not start here: {tools}/python may be a wrapper .*; set NLP_BENCH_PYTHON", said
    )
    assert not os.path.lexists(tmp_path / "env/.venv")


def test_real_pip_without_an_index(tmp_path: Path, tools: Path) -> None:
    """The real pip, of this Python; should it find anything against all expectation, that goes into a folder of the test."""
    (tools / "pip").write_text(f'#!/bin/bash\nPIP_TARGET="{tmp_path}/got" exec "{sys.executable}" -m pip "$@"\n')
    (tmp_path / "empty").mkdir()
    # A constraint of the machine's own pip.conf would give another error.
    alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "empty")}
    said = setup(tmp_path, tools, code=1, **alone)
    assert "ERROR: No matching distribution found for torch" in said
    assert "then repeat the same command" in said
    assert not os.path.lexists(tmp_path / "env/.venv")
    (half,) = (tmp_path / "env").glob(".venv-*/pip.err")
    assert "ERROR: No matching distribution" in half.read_text()


def test_nothing_of_others_is_replaced(tmp_path: Path, tools: Path) -> None:
    """A device, a file, a folder, a link to elsewhere: refused before anything is made."""
    venv = tmp_path / "env/.venv"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def refused(path: Path) -> None:
        assert f"error: {path} is not this script's link" in setup(tmp_path, tools, code=1)
        assert {one.name for one in path.parent.iterdir()} <= {".venv", ".venv.new"}

    venv.parent.mkdir()
    for path in (venv, venv.with_name(".venv.new")):
        path.write_text("mine")
        refused(path)
        assert path.read_text() == "mine"
        path.unlink()
        path.symlink_to("/dev/null")
        refused(path)
        assert Path("/dev/null").is_char_device()
        path.unlink()
    venv.mkdir()
    refused(venv)
    venv.rmdir()
    venv.symlink_to(elsewhere)
    refused(venv)
    assert venv.readlink() == elsewhere


def test_a_finished_one_is_taken_at_once(tmp_path: Path, tools: Path) -> None:
    setup(tmp_path, tools)
    assert setup(tmp_path, tools, DIE_AT="venv-begin") == f"nlp-bench: {tmp_path}/env/.venv is ready\n"


def test_packages_that_were_changed_by_hand_are_named_with_what_puts_them_back(tmp_path: Path, tools: Path) -> None:
    """`submit` and `doctor` said to renew it, and the script was ready at once, so that they said it again."""
    shutil.copytree(ROOT / "benchmark", tmp_path / "checkout/benchmark")
    for name in ("src", "pyproject.toml", "setup.py"):
        (tmp_path / "checkout" / name).symlink_to(ROOT / name)
    pins = tmp_path / "checkout/benchmark/env/constraints.txt"
    pins.write_text(re.sub(r"^numpy==[^\s;]+", "numpy==0.1", pins.read_text(), flags=re.MULTILINE))
    said = setup(tmp_path, tools, script=pins.with_name("setup_venv.sh"))
    venv = (tmp_path / "env/.venv").resolve()
    assert f"put them back, when no job runs with it: {venv}/bin/python -m pip install numpy==0.1\n" in said


def test_a_finished_one_is_kept_where_another_python_has_come_first_on_path(tmp_path: Path, tools: Path) -> None:
    """In a shell with conda's base a second one was begun, of minutes and gigabytes, or failed without a network."""
    python, venv = tools / "python3", tmp_path / "env/.venv"
    ready = f"nlp-bench: {venv} is ready"
    python.symlink_to("python")
    assert setup(tmp_path, tools, NLP_BENCH_PYTHON="").endswith(f"\n{ready}\n")
    assert setup(tmp_path, tools, NLP_BENCH_PYTHON="") == f"{ready}\n"
    python.unlink()
    python.write_text(f'#!/bin/bash\n[[ $3 != *"print(sys.version)" ]] || exec echo conda\n. "{tools}/python"\n')
    python.chmod(0o755)
    keeps = f"nlp-bench: keeping {venv} of Python {platform.python_version()}, though {python} comes first on PATH now; NLP_BENCH_PYTHON"
    assert setup(tmp_path, tools, NLP_BENCH_PYTHON="") == f"{keeps}={python} makes another\n{ready}\n"
    assert f"setting up {venv}-" in setup(tmp_path, tools, NLP_BENCH_PYTHON=str(python))


def test_a_path_that_the_shell_has_completed_is_the_same(tmp_path: Path, tools: Path) -> None:
    """Tab puts a slash behind a folder, which made another environment of it, or none."""
    for name in ("env/.venv/", "env/.venv", "env/.venv//"):
        said = setup(tmp_path, tools, NLP_BENCH_VENV=f"{tmp_path}/{name}")
        assert said.splitlines()[-1] == f"nlp-bench: {tmp_path}/env/.venv is ready"


def test_a_relative_path_is_refused_before_anything_is_made(
    tmp_path: Path, tools: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JUBE's steps looked for it in their own folders, where they made a second one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NLP_BENCH_VENV", "my env")
    said = "NLP_BENCH_VENV=my env does not begin with /, so that each folder would have an environment of its own: export NLP_BENCH_VENV="
    before = sorted(tmp_path.iterdir())
    assert f"{said}{tmp_path}/my\\ env\n" in setup(tmp_path, tools, NLP_BENCH_VENV="my env", code=2)
    done = activated(Path("my env"))
    assert (done.stdout[:2], f"{said}{tmp_path}/my\\ env\n" in done.stderr) == ("2 ", True), done.stderr
    said += f"'{tmp_path}/my env'"
    assert said in cli("submit", "--model", "tiny", "--system", "local", "--mock-data", code=2).err
    assert said in cli("doctor", "--checks", "environment", code=1).out
    assert sorted(tmp_path.iterdir()) == before


def test_environments_of_before_are_named(tmp_path: Path, tools: Path) -> None:
    """Each change of the pins makes a new one of some gigabytes, and nothing said that the old ones are still there."""
    old = tmp_path / "env/.venv-0123456789ab"
    old.mkdir(parents=True)
    assert f"when there are none: rm -r {old}\n" in setup(tmp_path, tools)
    assert old.exists()


def test_a_wish_for_installs_in_the_home_is_not_heeded(tmp_path: Path, tools: Path) -> None:
    """PIP_USER=1, or user = true in pip.conf, and pip refuses to install into any virtual environment; NVIDIA's images pin their own torch."""
    (tools / "pip").write_text(PIP.replace("\n", "\n[[ $PIP_USER$PIP_CONSTRAINT$PIP_TARGET == 0 ]] || exit 1\n", 1))
    setup(tmp_path, tools, PIP_USER="1", PIP_CONSTRAINT="/etc/pip/constraint.txt", PIP_TARGET="/software")


@pytest.mark.parametrize("locks", [[], [".venv.lock"]])
def test_a_folder_that_only_its_owner_may_write_names_another_way(open_folder: Path, locks: list[str]) -> None:
    """With an environment of another Python in it, of which the lock is there, room was said to lack, or python3-venv."""
    before = as_user(12345)
    (open_folder / "env").mkdir()
    for name in locks:
        (open_folder / "env" / name).touch(0o644)
    assert " set NLP_BENCH_VENV to a path of your own\n" in setup(open_folder, None, before=before, code=1)


def activated(
    venv: Path, before: str = ":", module: str = "module() { : $unset; }", words: str = "--system juwels-booster"
) -> "subprocess.CompletedProcess[str]":
    """Source activate.bash for JUWELS Booster with a stand-in for its modules, which reads an unset variable."""
    script = f'{before}; {module}; source "{ROOT}/benchmark/env/activate.bash" {words}; echo "$? $-"'
    environment = {**os.environ, "NLP_BENCH_VENV": str(venv), "NLP_BENCH_PYTHON": sys.executable}
    return execute("bash", "-c", script, env=environment)


def test_a_script_that_minds_unset_variables_may_source_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "nlp-bench.key").touch()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    (tmp_path / "bin/activate").write_text(f"VIRTUAL_ENV={shlex.quote(str(tmp_path))}\n")
    for before, flags in ((":", "0 hBc\n"), ("set -u", "0 huBc\n")):
        done = activated(tmp_path, before)
        assert done.stdout == flags, done.stderr
    done = activated(
        tmp_path, "set -- a.out --limit 1; export NLP_BENCH_SYSTEM=local", words=""
    )  # the script's own words
    assert done.stdout == "0 hBc\n", done.stderr
    again = f'source "{ROOT}/benchmark/env/activate.bash" --system local'
    done = activated(tmp_path, module=again, words="--system local; echo $PYTHONPATH")  # twice in one terminal
    assert done.stdout.splitlines()[0].split(":").count(f"{ROOT}/src") == 1
    done = activated(tmp_path, module="unset -f module")  # no login shell: it was active, without what its modules hold
    assert (done.stdout, "this shell has no command module: take a login shell" in done.stderr) == ("1 hBc\n", True)


def test_an_environment_that_was_moved_is_named(tmp_path: Path) -> None:
    """A checkout that is moved takes it along, and its scripts name the old place: it was active, without a command."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "old"], check=True)
    (tmp_path / "old/nlp-bench.key").touch()
    venv = (tmp_path / "old").rename(tmp_path / "new")
    done = activated(venv)
    assert done.stdout.startswith("1 "), done.stderr
    assert f"{venv} was made as {tmp_path}/old, and cannot be moved or copied: remove {venv}, then run" in done.stderr
    shutil.copytree(venv, tmp_path / "old", symlinks=True)
    done = activated(venv)
    assert f"{venv} was made as {tmp_path}/old, and cannot be moved or copied: remove {venv}, then run" in done.stderr
    (tmp_path / "old/bin/python").unlink()
    done = activated(tmp_path / "old")
    said = f"{tmp_path}/old/bin/python is gone: its Python was removed or its module is not loaded; load that module, or run"
    assert (done.stdout[:2], said in done.stderr) == ("1 ", True), done.stderr


def test_an_environment_whose_python_is_closed_to_this_user_is_named(open_folder: Path) -> None:
    """Of root's own Python (pyenv, uv): it was said to be gone, or another Python lacked numpy, and doctor's check broke."""
    before, venv, closed = as_user(12345), open_folder / "venv", open_folder / "root"
    for folder in (venv / "bin", closed):
        folder.mkdir(parents=True)
    (venv / "nlp-bench.key").touch()
    (venv / "bin/activate").write_text(f"VIRTUAL_ENV='{venv}'; deactivate() {{ :; }}\n")
    (venv / "bin/python").symlink_to(closed / "python")
    (closed / "python").symlink_to(sys.executable)
    closed.chmod(0o700)
    variables = {**os.environ, "NLP_BENCH_VENV": str(venv), "NLP_BENCH_PYTHON": sys.executable}
    said = f"{venv}/bin/python leads to {closed}/python, which is closed to uid 12345: open the way to it (chmod go+x {closed}), or"
    words = [str(ROOT / "benchmark/env/nlp-bench"), "doctor", "--system", "local", "--checks", "environment"]
    done = execute(*before, "bash", *words, env=variables)
    assert f"warning: another Python is taken: {said}" in done.stderr
    assert f"{venv} is closed to uid 12345: {closed}/python: Permission denied" in done.stdout
    done = execute(*before, "bash", "-c", f'source "{ROOT}/benchmark/env/activate.bash" --system local', env=variables)
    assert (done.returncode, f"error: {said}" in done.stderr) == (1, True), done.stderr


def test_a_copy_of_an_environment_does_not_change_the_original(tmp_path: Path, tools: Path) -> None:
    """The commands in its bin name the original, whose packages they installed without a word."""
    setup(tmp_path, tools)
    shutil.copytree(tmp_path / "env", tmp_path / "copy", symlinks=True)
    before = {path: path.read_bytes() for path in (tmp_path / "env/.venv").resolve().glob("*") if path.is_file()}
    said = setup(tmp_path, tools, "--extra", "test", NLP_BENCH_VENV=f"{tmp_path}/copy/.venv", code=1)
    (copy,) = (path for path in (tmp_path / "copy").glob(".venv-*") if path.is_dir())
    assert f"{copy} is a copy of {tmp_path}/env/{copy.name}, and its commands would change that one" in said
    assert f"rm -r {copy}, then repeat" in said
    assert {path: path.read_bytes() for path in (tmp_path / "env" / copy.name).glob("*") if path.is_file()} == before
    shutil.rmtree(copy)
    setup(tmp_path, tools, "--extra", "test", NLP_BENCH_VENV=f"{tmp_path}/copy/.venv")


def test_what_a_users_file_for_every_bash_prints_is_no_word_of_the_machine(tmp_path: Path, tools: Path) -> None:
    (tmp_path / "bashrc").write_text("echo Welcome to the cluster; echo 3 nodes are down\n")
    assert "for cpu" in setup(tmp_path, tools, BASH_ENV=str(tmp_path / "bashrc"))
    assert is_whole(tmp_path / "env/.venv")


@pytest.mark.parametrize(("die_at", "mode"), [("", 0o700), ("rest", 0o755)])
def test_an_environment_that_a_colleague_keeps_closed_or_half_is_named(
    open_folder: Path, tools: Path, die_at: str, mode: int
) -> None:
    """It was said to lack room, or python3-venv."""
    before = as_user(12345)
    setup(open_folder, tools, DIE_AT=die_at, code=-9 if die_at else 0)
    (venv,) = (path for path in (open_folder / "env").glob(".venv-*") if path.is_dir())
    venv.chmod(mode)
    (open_folder / "env/.venv.lock").chmod(0o644)
    assert f"error: {venv} belongs to " in setup(open_folder, None, before=before, code=1)
    (open_folder / "env/.venv.lock").chmod(0o600)
    said = setup(open_folder, None, before=before, code=1)
    assert f"error: {open_folder}/env/.venv.lock belongs to " in said
    assert f"chmod -R go+rX {open_folder}/env/.venv*; or set NLP_BENCH_VENV to a path of your own\n" in said


def test_a_wait_for_another_setup_is_said(tmp_path: Path, tools: Path) -> None:
    """Behind a setup of minutes, or one that was stopped, it stood still without a word."""
    (tmp_path / "env").mkdir()
    with (tmp_path / "env/.venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiter = re.compile(rf"-> FLOCK .*:{os.fstat(lock.fileno()).st_ino} ")

        def release() -> None:
            while not waiter.search(Path("/proc/locks").read_text()):
                time.sleep(0.05)
            time.sleep(4)  # the script waits 3 s before it says so
            lock.close()

        thread = threading.Thread(target=release, daemon=True)
        thread.start()
        said = setup(tmp_path, tools)
        thread.join(10)
    assert f"waiting for the process that holds {tmp_path}/env/.venv.lock: " in said


def test_a_folder_that_is_mounted_noexec_is_named(tmp_path: Path) -> None:
    """numpy and torch failed in tracebacks below an environment that was called ready."""
    mounted = on_tmpfs(tmp_path, "noexec")
    said = "is mounted noexec, where no package can be loaded"
    assert f"error: {tmp_path}/env {said}: put the checkout" in setup(tmp_path, None, before=mounted, code=1)
    made = 'mkdir -p "$0/bin" && ln -s "$1" "$0/bin/python" && touch "$0/nlp-bench.key" && exec "$@"'
    doctor = [*NLP_BENCH, "doctor", "--checks", "environment"]
    done = execute(*mounted, "bash", "-c", made, tmp_path, *doctor, env={**os.environ, "NLP_BENCH_VENV": str(tmp_path)})
    assert (done.returncode, f"{tmp_path} {said}" in done.stdout) == (1, True), done


def test_without_flock_it_is_named(tmp_path: Path) -> None:
    """A command that is not there was taken for a lock that is held."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    said = setup(tmp_path, None, PATH=str(tmp_path / "bin"), code=1)
    assert "error: flock is missing on PATH: install util-linux" in said
    assert not (tmp_path / "env").exists()


def test_a_finished_one_of_another_user_is_taken_as_it_is(open_folder: Path, tools: Path) -> None:
    before = as_user(12345)
    setup(open_folder, tools)
    (open_folder / "env/.venv.lock").chmod(0o644)
    said = setup(open_folder, None, before=before)
    assert said.splitlines()[-1] == f"nlp-bench: {open_folder}/env/.venv is ready"


SCRIPTS = ("benchmark/run.sh", "benchmark/env/setup_venv.sh", "src/compile_build.sh", "benchmark/env/nlp-bench")


@pytest.mark.parametrize("name", SCRIPTS[:3])
def test_a_script_that_is_sourced_leaves_the_terminal_open(name: str) -> None:
    """It set -e there: the next command that was mistyped ended the session."""
    script = ROOT / name
    done = execute("bash", "-c", f"source {shlex.quote(str(script))} --any; false; echo $?$-", timeout=60)
    assert (done.stdout[0], "e" in done.stdout) == ("1", False)
    assert done.stderr == f"nlp-bench: error: run it with bash: bash {script}\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_is_given_to_another_shell_names_bash(name: str) -> None:
    if not shutil.which("dash"):
        pytest.skip("there is no dash here")
    script = ROOT / name
    done = execute("dash", script, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"nlp-bench: error: run it with bash: bash {script}\n")


def test_a_part_of_a_checkout_says_that_it_is_one(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "benchmark/env", tmp_path / "benchmark/env")
    done = execute("bash", tmp_path / "benchmark/env/nlp-bench", "report", "x.log", timeout=60)
    said = f"nlp-bench: error: {tmp_path}/src is not there, or not whole: copy the whole checkout, or clone it anew\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_copy_in_the_spool_of_a_batch_system_says_what_to_hand_over(name: str, tmp_path: Path) -> None:
    """The script itself was given to sbatch or qsub, which start a copy."""
    script = tmp_path / "job00007/slurm_script"
    script.parent.mkdir()
    shutil.copy(ROOT / name, script)
    done = execute("bash", script, timeout=60)
    said = f"nlp-bench: error: {script} is a copy without its checkout, as sbatch and qsub make of a script: hand over one that says: bash CHECKOUT/{name}\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_what_is_to_be_sourced_in_bash_says_so() -> None:
    script = ROOT / "benchmark/env/activate.bash"
    done = execute("bash", script, timeout=60)
    assert (done.returncode, f"source it: source {script}\n" in done.stderr) == (2, True), done.stderr
    if shutil.which("dash"):
        words = ["dash", "-c", f'. "{script}"; echo "$?"']
        done = execute(*words, timeout=60)
        assert (done.stdout, "start bash, then source" in done.stderr) == ("2\n", True), done.stderr
