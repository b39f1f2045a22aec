"""Which files are shards."""

import os
import sys
from pathlib import Path

import pytest
from support.processes import execute

from nlp_bench.data.prepare import find_shards
from nlp_bench.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = ("b.jsonl", "a.json.gz", "deep/c.jsonl.zst", "notes.txt", ".hidden/d.jsonl", "deep/.e.jsonl", "[1].jsonl")
    for name in made:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def names(folder: Path, *words: str) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in find_shards(tuple(str(folder / word) for word in words))]


def test_words_keep_their_order_and_folders_and_patterns_are_sorted(folder: Path) -> None:
    assert names(folder, "") == ["[1].jsonl", "a.json.gz", "b.jsonl", "deep/c.jsonl.zst"]
    assert names(folder, "deep", "[ab].j*") == ["deep/c.jsonl.zst", "a.json.gz", "b.jsonl"]
    assert names(folder, "**/c*") == ["deep/c.jsonl.zst"]
    assert names(folder, "notes.txt", "[1].jsonl") == ["notes.txt", "[1].jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["b.jsonl", "*"], r"b.jsonl is named twice \(as .*b.jsonl, by .*b.jsonl, and as .*b.jsonl, by .*\*\)"),
        (["q.jsonl"], r"input: cannot read .*q.jsonl: No such file"),
        (["empty"], r"empty holds no file named \*.jsonl or \*.json"),
        (["lfs.jsonl"], r"lfs.jsonl is a git-lfs pointer, not the file; fetch it with git lfs pull"),
    ],
)
def test_a_wrong_word_is_named(folder: Path, words: list[str], message: str) -> None:
    (folder / "empty").mkdir()
    (folder / "lfs.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(UsageError, match=message):
        names(folder, *words)


@pytest.mark.parametrize(
    "words",
    [
        "p --vocab-file f --merge-file f",
        "f --vocab-file p --merge-file f",
        "f --vocab-file f --merge-file p",
        "f --tokenizer-model p",
    ],
)
def test_a_pipe_as_data_does_not_hang(tmp_path: Path, words: str) -> None:
    os.mkfifo(tmp_path / "p")
    (tmp_path / "f").write_text('{"text": "a"}\n')
    command = [sys.executable, "-P", "-m", "nlp_bench", "data", "prepare", *words.split(), "--output", "out/"]
    done = execute(*command, cwd=tmp_path, timeout=60)
    assert done.returncode == UsageError.exit_code
    assert "p is a pipe, and it is read more than once; write it into a file" in done.stderr
