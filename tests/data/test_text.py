"""Text to tokens: blocks of whole lines, cut in the same places wherever reading begins; sentences by a rule; what is wrong with a line."""

import gzip
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlp_bench.data import text as module
from nlp_bench.data.shards import Encoded, Reading, encode_lines
from nlp_bench.data.text import Block, blocks, split_sentences
from nlp_bench.data.tokenizer import Encoder
from nlp_bench.errors import UsageError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 8)
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 64)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocks") / "a"


def without_position(found: list[Block]) -> list[tuple[bytes, int, int]]:
    return [(block.data, block.end, block.number) for block in found]


@given(st.lists(st.integers(0, 40), max_size=12), st.booleans(), st.booleans())
def test_reading_can_begin_behind_every_block(place: Path, lengths: list[int], is_packed: bool, is_whole: bool) -> None:
    text = b"\n".join(b"x" * length for length in lengths) + (b"\n" if is_whole else b"")
    place.write_bytes(gzip.compress(text) if is_packed else text)
    found = list(blocks(place))
    assert b"".join(block.data for block in found) == text
    assert all(block.data.endswith(b"\n") for block in found[:-1])
    for number, block in enumerate(found):
        following = block.number + block.data.count(b"\n")
        again = list(blocks(place, block.end, following))
        assert without_position(again) == without_position(found[number + 1 :])


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\n" + b"y" * 100)
    with pytest.raises(UsageError, match=r"a, line 2: longer than 64 bytes; is this JSON lines"):
        list(blocks(tmp_path / "a"))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"PK\x03\x04", "is a zip archive; unpack it"), (b"PAR1abc", "is Parquet; write it as JSON lines")],
)
def test_what_is_no_text_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        list(blocks(tmp_path / "a"))


def test_a_packed_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"x\n"))
    with pytest.raises(UsageError, match="cannot be read to its end: it is shorter than it was"):
        list(blocks(tmp_path / "a", begin=10))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("Dr. Who met J. R. Ewing at 3.5 m. It rained.", ["Dr. Who met J. R. Ewing at 3.5 m.", "It rained."]),
        ("See fig. 3, e.g. there. 5 remain.", ["See fig. 3, e.g. there.", "5 remain."]),
        ("what? never mind... said he. (Yes.) Good", ["what? never mind... said he.", "(Yes.)", "Good"]),
        ("A heading\n\nA text over\ntwo lines", ["A heading", "A text over\ntwo lines"]),
        ("\u4f60\u597d\u3002\u518d\u89c1\uff01", ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01"]),
        ("\u00dcber Nacht. \u00c4pfel fielen.", ["\u00dcber Nacht.", "\u00c4pfel fielen."]),
        ("no end", ["no end"]),
        (" \n\n . \n", ["."]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize("row", [".", ". ", "\n", "\n ", '."', "!?\u2026", "A. "])
def test_long_rows_of_marks_take_no_square_of_their_length(row: str) -> None:
    split_sentences(row * 200_000 + "x")  # the square would take hours


LETTERS = Encoder(encode=lambda texts: [list(text.encode()) for text in texts], vocab_size=257, end_id=256, library="")


def encode(data: bytes, number: int = 1, **reading: object) -> Encoded:
    return encode_lines((LETTERS, Reading(**reading), 2), "f", data, number)  # type: ignore[arg-type]


def test_documents_become_sequences_with_an_end() -> None:
    found = encode(b'\xef\xbb\xbf{"text": "ab"}\r\n\n{"text": ""}\n{"text": "c"}', append_eod=True)
    assert array("H", found.tokens).tolist() == [97, 98, 256, 99, 256]
    assert (found.lengths.tolist(), found.sequences.tolist(), found.num_empty) == ([3, 2], [1, 1], 1)


def test_sentences_become_sequences_of_one_document() -> None:
    data = b'{"text": "A b. C d."}\n{"text": ["e", "", "f"]}\n{"text": []}\n'
    found = encode(data, append_eod=True, split_sentences=True)
    assert (found.lengths.tolist(), found.sequences.tolist(), found.num_empty) == ([4, 5, 1, 2], [2, 2], 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": ', r"not JSON: "),
        (b"[" * 100_000, r"not JSON: "),
        (b'{"body": "b", "id": 1}', r"no 'text': its keys are body, id; name the right one with --json-key"),
        (b"[1]", r"no 'text': it is no object; `jq -c '.\[\]' FILE` makes lines of an array"),
        (b" [", r"not JSON: .*; `jq -c '.\[\]' FILE` makes lines of an array"),
        (b'{"text": null}', r"'text' is null, not text"),
        (b'{"text": ["a", 1]}', r"'text' is list, not text"),
        (b'{"text": "\xff"}', r"not UTF-8: .*; convert the file with iconv"),
        (b'{"text": "a\\ud800"}', r"'text' has half of a surrogate pair, \\ud800"),
        (b'{"text": ["a\\udc00"]}', r"'text' has half of a surrogate pair, \\udc00"),
    ],
)
def test_a_broken_line_is_named(line: bytes, message: str) -> None:
    data = b'{"text": "a"}\n' + line + b"\n"
    with pytest.raises(UsageError, match=rf"input: f, line 8: {message}.*; --skip-broken leaves such lines out"):
        encode(data, number=7)
    found = encode(data, number=7, skip_broken=True)
    assert (found.num_broken, len(found.broken), found.tokens) == (1, 1, b"a\0")
