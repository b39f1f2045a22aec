"""Is an indexed dataset whole, and was it made with this tokenizer? Asked before anything is trained."""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes import execute

from nlp_bench.data import PREFIX
from nlp_bench.data.indexed import HEADER, MAGIC, PREPARED, check_indexed, check_tokenizer
from nlp_bench.data.maker import DataRequest, make_data
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import sha256_of


@pytest.fixture
def pair(tmp_path: Path) -> str:
    """Two documents of 3 and 2 tokens of 2 bytes."""
    index = HEADER.pack(MAGIC, 1, 8, 2, 3) + struct.pack("<2i2q3q", 3, 2, 0, 6, 0, 1, 2)
    (tmp_path / "my data.idx").write_bytes(index)
    (tmp_path / "my data.bin").write_bytes(bytes(10))
    return str(tmp_path / "my data")


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".bin", bytes(9), r"data.bin has 9 bytes but its index says 10; it is truncated; make the data anew"),
        (".bin", b"version https://git-lfs.github.com/spec/v1\n", r"data.bin is a git-lfs pointer, not the file"),
        (".idx", b"MMIDIDX", r"is not a Megatron index"),
        (".idx", b"TNTIDX\x00\x00" + bytes(40), r"is not a Megatron index"),
        (".idx", HEADER.pack(MAGIC, 2, 8, 2, 3), r"has version 2, token type 8; only version 1 is known"),
        (".idx", HEADER.pack(MAGIC, 1, 8, 2, 3) + bytes(47), r"data.idx has 81 bytes but its header says 82"),
        (".idx", HEADER.pack(MAGIC, 1, 8, 0, 1) + bytes(8), r"holds no sequences"),
        (".bin", None, r"data.bin does not exist; make it with nlp-bench data, or use --mock-data"),
        (".idx", None, r"data.idx does not exist; make it with nlp-bench data, or use --mock-data"),
    ],
)
def test_a_broken_dataset_is_refused(pair: str, suffix: str, content: bytes | None, message: str) -> None:
    if content is None:
        Path(pair + suffix).unlink()
    else:
        Path(pair + suffix).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        check_indexed(pair)


GPT2, HUGGING, HASH = "GPT2BPETokenizer", "HuggingFaceTokenizer", "sha256 [0-9a-f]{16}"


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A record of prepared data beside its tokenizer files."""
    files = {}
    for field, name in (("vocab_file", "vocab.json"), ("merge_file", "merges.txt")):
        (tmp_path / name).write_text(name)
        files[field] = {"name": name, "bytes": len(name), "sha256": sha256_of(tmp_path / name)}
    tokenizer = {"type": GPT2, "vocab_size": 600, "files": files}
    (tmp_path / "d_text_document.json").write_text(json.dumps({"schema": PREPARED, "tokenizer": tokenizer}))
    return str(tmp_path / "d_text_document")


def test_the_same_tokenizer_passes(prefix: str) -> None:
    folder = Path(prefix).parent
    files = {"vocab_file": str(folder / "vocab.json"), "merge_file": str(folder / "merges.txt")}
    check_tokenizer(prefix, tokenizer_type=GPT2, vocab_size=640, **files)
    check_tokenizer(prefix, tokenizer_type="NullTokenizer", vocab_size=600)
    check_tokenizer(str(folder / "unknown"), tokenizer_type=HUGGING, vocab_size=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokenizer_type": HUGGING}, f"made with {GPT2}; use --tokenizer-type {GPT2} --vocab-file vocab.json"),
        ({"vocab_file": "merges.txt"}, rf"vocab_file: .*merges.txt \({HASH}\) is not the vocab.json \({HASH}\)"),
        ({"merge_file": "gone"}, r"merge_file: cannot read .*gone: No such file"),
        ({"vocab_size": 599}, r"vocab_size: 599 is less than the 600 of the tokenizer that made"),
        ({"tokenizer_type": "NullTokenizer", "vocab_size": 512}, r"vocab_size: 512 is less than the 600"),
    ],
)
def test_another_tokenizer_is_refused(prefix: str, given: dict[str, Any], message: str) -> None:
    folder = Path(prefix).parent
    given = {"tokenizer_type": GPT2} | given
    given |= {key: str(folder / given[key]) for key in ("vocab_file", "merge_file") if key in given}
    with pytest.raises(UsageError, match=message):
        check_tokenizer(prefix, **given)


def test_the_invented_corpus_has_a_record_too(tmp_path: Path) -> None:
    make_data(DataRequest(output=tmp_path / "data", documents=50, vocab_size=300))
    prefix = str(tmp_path / "data" / PREFIX)
    good = {"tokenizer_type": "GPT2BPETokenizer", "vocab_file": str(tmp_path / "data" / "vocab.json")}
    check_tokenizer(prefix, **good, vocab_size=300)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"vocab_file: .*merges.txt .* is not the vocab.json"):
        check_tokenizer(prefix, **good | {"vocab_file": str(tmp_path / "data" / "merges.txt")})  # type: ignore[arg-type]
    check_tokenizer(str(tmp_path / "data" / "others"), tokenizer_type=HUGGING)


def test_strange_and_newer_records(prefix: str) -> None:
    Path(prefix + ".json").write_text('{"loss": 1}')
    check_tokenizer(prefix, tokenizer_type=HUGGING)  # not ours: it says nothing about the data
    Path(prefix + ".json").write_text('{"schema": "nlp-bench/data/3"}')
    with pytest.raises(NlpBenchError, match="is newer than this nlp-bench reads"):
        check_tokenizer(prefix, tokenizer_type="NullTokenizer")


def test_it_is_light() -> None:
    heavy = "[name for name in ('torch', 'numpy', 'tokenizers') if name in sys.modules]"
    code = f"import sys; from nlp_bench.data import blend, indexed; print({heavy})"
    assert execute(sys.executable, "-c", code, check=True).stdout == "[]\n"
