"""The house rules about files, functions and names."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked(*patterns: str) -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def sources() -> list[Path]:
    return tracked("src/*.py")


def test_files_are_small() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {path.name: n for path, n in lengths.items() if n > 900} == {}


def test_functions_are_small() -> None:
    lengths = {}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lengths[f"{path.name}:{node.name}"] = (node.end_lineno or 0) - node.lineno + 1
    assert {name: n for name, n in lengths.items() if n > 80} == {}


def test_every_package_stands_in_the_architecture_and_every_path_of_it_exists() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("<!-- tree -->")[1]
    listed = set(re.findall(r"`([\w./]+)`", "\n".join(line.split("|")[1] for line in text.splitlines() if "|" in line)))
    assert [name for name in sorted(listed) if not (ROOT / name).exists()] == []
    packages = {path.relative_to(ROOT).parts[2] for path in sources() if len(path.relative_to(ROOT).parts) > 3}
    assert {f"src/nlp_bench/{name}/" for name in packages} - listed == set()


SITE_WORDS = (
    r"juwelsbooster", r"jwlogin", r"\bjwb", r"develbooster", r"exalab", r"NCCL_SOCKET_IFNAME\s*=", r"/etc/FZJ", r"Stages/20",
)  # fmt: skip
"""Hosts, partitions and modules of the system files, which must stand nowhere else."""


@pytest.mark.parametrize("word", SITE_WORDS)
def test_site_facts_stand_in_the_system_files_only(word: str) -> None:
    places = tracked("src/*", "jube/*", "benchmark/jube/*", "benchmark/env/*", "benchmark/models/*", "benchmark/run.sh")
    found = [path.name for path in places if re.search(word, path.read_text(encoding="utf-8"))]
    assert found == []


def test_no_absolute_path_of_a_machine() -> None:
    allowed = re.compile(r"/(usr/bin/env|proc/|dev/|etc/ssl|bin/sh)")
    found = []
    for path in tracked("*.py", "*.sh", "*.bash", "*.yaml", "*.toml", "*.md", "*.in"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"(?<![\w.$}~])/(home|root|work|opt|mnt|Users)/\w", line) and not allowed.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_help_is_light() -> None:
    code = (
        "import sys; from nlp_bench.cli.main import main; main(['--help']);"
        "print([m for m in ('torch', 'pandas', 'matplotlib', 'numpy', 'megatron') if m in sys.modules], file=sys.stderr)"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
