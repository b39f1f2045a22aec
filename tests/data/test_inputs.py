"""Which files are shards."""

import json
import os
import sys
import tarfile
from pathlib import Path

import pytest
from support.command import Cli
from support.processes import execute

from nlp_bench.cli.main import main
from nlp_bench.data import maker
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


def test_an_endless_corpus_is_refused_and_its_tokenizer_needs_few_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    words = ["data", "--vocab-size", "300", "--output", str(tmp_path / "data")]
    said = cli(*words, "--documents", "1e12", code=UsageError.exit_code).err
    assert "documents: 1000000000000 are more than 10000000" in said
    said = cli("data", "--vocab-size", "900000000", "--output", tmp_path / "data", code=UsageError.exit_code).err
    assert "vocab_size: 900000000 is more than 1000000" in said
    assert main([*words, "--documents", "50"]) == 0
    few = (tmp_path / "data/merges.txt").read_text()
    monkeypatch.setattr(maker, "LEARNED_FROM", 50)
    assert main([*words, "--documents", "100"]) == 0
    assert (tmp_path / "data/merges.txt").read_text() == few
    assert json.loads((tmp_path / "data/data.json").read_text())["num_documents"] == 100


@pytest.mark.parametrize(
    "words",
    [
        ("data", "prepare", "PIPE", "--output", "out/", "--vocab-file", "FILE", "--merge-file", "FILE"),
        ("data", "prepare", "FILE", "--output", "out/", "--vocab-file", "PIPE", "--merge-file", "FILE"),
        ("data", "prepare", "FILE", "--output", "out/", "--vocab-file", "FILE", "--merge-file", "PIPE"),
        ("data", "prepare", "FILE", "--output", "out/", "--tokenizer-model", "PIPE"),
    ],
)
def test_a_pipe_as_data_does_not_hang(tmp_path: Path, words: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "p")
    (tmp_path / "f").write_text('{"text": "a"}\n')
    names = {"PIPE": "p", "FILE": "f"}
    command = [sys.executable, "-P", "-m", "nlp_bench", *(names.get(word, word) for word in words)]
    done = execute(*command, cwd=tmp_path, timeout=60)
    assert done.returncode == UsageError.exit_code
    assert "p is a pipe, and it is read more than once; write it into a file" in done.stderr


def test_a_tar_archive_is_no_text(tmp_path: Path, cli: Cli) -> None:
    vocab, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    vocab.write_text('{"a": 0, "<|endoftext|>": 1}')
    merges.write_text("#version: 0.2\n")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with tarfile.open(tmp_path / "a.jsonl.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.jsonl", "a.jsonl")
    words = ["--output", str(tmp_path / "out/"), "--vocab-file", str(vocab), "--merge-file", str(merges)]
    said = cli("data", "prepare", tmp_path / "a.jsonl.tar.gz", *words, code=UsageError.exit_code).err
    assert "a.jsonl.tar.gz is a tar archive; unpack it" in said
