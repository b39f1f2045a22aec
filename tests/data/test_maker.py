"""Making the invented corpus: whole, once, the same everywhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Cli

from nlp_bench.cli.main import main
from nlp_bench.data import PREFIX, maker
from nlp_bench.data.indexed import check_indexed
from nlp_bench.data.maker import DataRequest, documents, make_data
from nlp_bench.data.tokenizer import byte_pairs
from nlp_bench.errors import NlpBenchError, UsageError


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with space") / "small data"
    make_data(DataRequest(output=folder, documents=200, vocab_size=400))
    return folder


def test_the_corpus_is_the_same_for_the_same_seed_only() -> None:
    assert list(documents(1, 3)) == list(documents(1, 3))
    assert list(documents(1, 3)) != list(documents(2, 3))


@pytest.mark.slow
def test_the_files_are_the_same_for_the_same_seed(small: Path, tmp_path: Path) -> None:
    again, made = make_data(DataRequest(output=tmp_path / "again", documents=200, vocab_size=400))
    record = json.loads((small / "data.json").read_text())
    assert made
    assert again["files"] == record["files"]
    assert record["schema"] == "nlp-bench/data/1"


def test_the_documents_come_back_from_the_files(small: Path) -> None:
    tokenizer = byte_pairs(small / "vocab.json", small / "merges.txt")
    first = [*tokenizer.encode(next(documents(1, 1))).ids, tokenizer.token_to_id("<|endoftext|>")]
    tokens = (small / f"{PREFIX}.bin").read_bytes()[: 2 * len(first)]
    assert [int.from_bytes(tokens[i : i + 2], "little") for i in range(0, len(tokens), 2)] == first
    assert tokenizer.decode(first[:-1]) == next(documents(1, 1))


def test_a_second_call_keeps_the_data_and_other_parameters_replace_them(tmp_path: Path) -> None:
    output = tmp_path / "data"
    words = ["data", "--output", str(output), "--documents", "50", "--vocab-size", "300"]
    assert main(words) == 0
    first = (output / "data.json").stat().st_mtime_ns
    assert main(words) == 0
    assert (output / "data.json").stat().st_mtime_ns == first
    assert main([*words, "--seed", "2"]) == 0
    assert json.loads((output / "data.json").read_text())["parameters"]["seed"] == 2
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["data"]


def test_a_link_to_another_file_system_stays(tmp_path: Path) -> None:
    """build/data to a scratch, for want of room in the home: the data went to the home, and the link was set aside."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "data").symlink_to("scratch")
    make_data(DataRequest(output=tmp_path / "data", documents=20, vocab_size=300))
    assert (tmp_path / "data").is_symlink()
    assert (tmp_path / f"scratch/{PREFIX}.bin").exists()


def test_damaged_data_are_made_anew(tmp_path: Path, cli: Cli) -> None:
    words = ["data", "--output", tmp_path / "data", "--documents", "50", "--vocab-size", "300"]
    cli(*words)
    (tmp_path / f"data/{PREFIX}.bin").write_bytes(b"")
    assert "(made anew: what was there was not whole, or of other parameters)" in cli(*words).out
    check_indexed(str(tmp_path / "data" / PREFIX))


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "describe", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_data(DataRequest(output=tmp_path / "data", documents=50, vocab_size=300))
    assert [path.name for path in tmp_path.iterdir()] == [".data.lock"]


@pytest.mark.slow
def test_two_at_the_same_time_make_it_once(tmp_path: Path) -> None:
    words = ["data", "--output", str(tmp_path / "data"), "--documents", "50", "--vocab-size", "300"]
    command = [sys.executable, "-m", "nlp_bench", *words]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = sorted(process.communicate(timeout=60)[0].split("(")[-1] for process in running)
    assert answers == ["already there)\n", "made)\n"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"output: .* holds no data.json"):
        make_data(DataRequest(output=tmp_path))


def test_without_megatron_core_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.packages.is_missing", lambda module: module == "megatron")
    with pytest.raises(NlpBenchError, match=r"the Python package megatron, .*\n  pip install 'nlp-bench\[train\]'"):
        make_data(DataRequest(output=tmp_path / "data", documents=50, vocab_size=300))


def test_sizes_that_cannot_be_made_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="vocab_size: 100 is less than 257"):
        DataRequest(output=tmp_path, vocab_size=100)
    with pytest.raises(UsageError, match="vocab_size: 4096 asked for, but this text gives"):
        make_data(DataRequest(output=tmp_path / "out", documents=1))


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
