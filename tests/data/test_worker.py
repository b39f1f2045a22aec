"""A block of lines to tokens: documents, sentences, end tokens, and what is wrong with a line."""

from array import array

import pytest

from nlp_bench.data.shards import Encoded, Reading, encode_lines
from nlp_bench.data.tokenizer import Encoder
from nlp_bench.errors import UsageError

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
