"""What CI runs."""

import os
import shutil
from pathlib import Path

import pytest
from support.processes import ROOT, execute

RUN = """cd -- "$(dirname -- "$0")/.." && pwd
echo "${NLP_BENCH_VENV-none} $(git ls-files -co | xargs) $(ls ../shared)"
exit 3
"""


def test_ci_runs_in_a_path_with_a_blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths that stand unquoted in a shell line, or in a first line of a script, show there alone."""
    for name in filter(lambda name: name.startswith("GIT_"), list(os.environ)):
        monkeypatch.delenv(name)  # of a commit's hook, which is about another repository
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path / "venv"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/log").touch()
    checkout = tmp_path / "checkout"
    for folder in (".ci", "tests"):
        (checkout / folder).mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", checkout / ".ci")
    (checkout / "tests/run.sh").write_text(RUN)
    execute("git", "init", "-q", checkout, check=True)
    done = execute("bash", checkout / ".ci/run", cwd="/")
    path, seen = done.stdout.splitlines()
    assert done.returncode == 3, done.stderr
    assert Path(path).parent == tmp_path
    assert " " in Path(path).name
    assert seen == "none .ci/run tests/run.sh log"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "shared"]
