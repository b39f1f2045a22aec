"""Which files are shards."""

from pathlib import Path

import pytest

from nlp_bench.data.prepare import find_shards
from nlp_bench.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.jsonl",
        "a.json.gz",
        "deep/c.jsonl.zst",
        "notes.txt",
        ".hidden/d.jsonl",
        "deep/.e.jsonl",
        "[1].jsonl",
    ):
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
        ([], r"input: not given; name files"),
        (["b.jsonl", "*"], r"b.jsonl is named twice \(as .*b.jsonl, by .*b.jsonl, and as .*b.jsonl, by .*\*\)"),
        (["q*"], r"no file matches"),
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
