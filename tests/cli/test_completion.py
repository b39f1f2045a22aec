"""The completion script of bash completes; those of zsh and tcsh are made."""

import sys
from pathlib import Path

import pytest
from support.command import Cli
from support.processes import execute

TRY = """source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
$(complete -p nlp-bench | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("repo", {"report"}),
        ("check --model llama", {"llama_8b"}),
        ("plan --system juwels", {"juwels-booster"}),
        ("init bench --like juwels", {"juwels-booster"}),
        ("submit --tensor-model", {"--tensor-model-parallel-size"}),
        ("submit --kernels t", {"te", "torch"}),
        ("report --format c", {"csv"}),
        ("plan cal", {"calibrate"}),
        ("plan calibrate --dev", {"--device"}),
        ("history tr", {"trend"}),
    ],
)
def test_bash(words: str, completed: set[str], script: Path) -> None:
    done = execute("bash", "-c", TRY, "bash", str(script), "nlp-bench", *words.split(), check=True)
    assert set(done.stdout.split()) == completed
    assert done.stderr == ""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "nlp-bench.bash"
    done = execute(sys.executable, "-m", "nlp_bench", "completion", "bash", check=True)
    path.write_text(done.stdout)
    return path


@pytest.mark.parametrize(("shell", "begin"), [("zsh", "#compdef nlp-bench\n"), ("tcsh", "# AUTOMATICALLY GENERATED")])
def test_other_shells(shell: str, begin: str, cli: Cli) -> None:
    script = cli("completion", shell).out
    assert script.startswith(begin)
    assert "juwels-booster" in script
    assert "tensor-model-parallel-size" in script
