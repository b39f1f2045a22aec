"""Tokenizers of every type: what they give is what the library gives, whole, and without tokens that nobody asked for."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from nlp_bench.data.tokenizer import TokenizerChoice, build, type_of
from nlp_bench.errors import UsageError

FILES: dict[str, Path | None] = {"vocab_file": None, "merge_file": None, "tokenizer_model": None}


def hugging_face(path: Path, end: str | None = "</s>") -> Path:
    """A tokenizer.json as they come: it cuts, pads, and begins each text with a token."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<s>": 2, "<unk>": 3}, unk_token="<unk>"))  # noqa: S106  # no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if end:
        tokenizer.add_special_tokens([AddedToken(end, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=3)
    tokenizer.save(str(path))
    return path


def of(path: Path, **more: Any) -> TokenizerChoice:
    return TokenizerChoice(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=path, **more)


def of_model(path: Path, end: str | None = None) -> TokenizerChoice:
    files = FILES | {"tokenizer_model": path}
    return TokenizerChoice(tokenizer_type=type_of(**files), eod_token=end, **files)


def test_a_hugging_face_file_neither_cuts_nor_pads_nor_adds(tmp_path: Path) -> None:
    encoder = build(of(hugging_face(tmp_path / "tokenizer.json")))
    assert encoder.encode(["a b a b a", "b"]) == [[0, 1, 0, 1, 0], [1]]
    assert (encoder.vocab_size, encoder.end_id) == (5, 4)
    assert build(of(tmp_path)).vocab_size == 5  # its folder will do


@pytest.mark.parametrize("value", ["b", {"content": "b", "lstrip": False}])
def test_the_end_is_what_the_file_beside_it_says(tmp_path: Path, value: object) -> None:
    path = hugging_face(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": value}))
    assert build(of(path)).end_id == 1
    assert build(of(path, eod_token="a")).end_id == 0  # noqa: S106
    with pytest.raises(UsageError, match="eod_token: the tokenizer has no token 'zz'"):
        build(of(path, eod_token="zz"))  # noqa: S106


def test_a_tokenizer_may_have_no_end(tmp_path: Path) -> None:
    assert build(of(hugging_face(tmp_path / "tokenizer.json", end=None))).end_id is None


@pytest.mark.parametrize(("kind", "expected"), [("BertWordPieceLowerCase", [5, 6]), ("BertWordPieceCase", [7, 6])])
def test_bert_reads_case_as_its_type_says(tmp_path: Path, kind: str, expected: list[int]) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngo\n##ing\nGo")
    encoder = build(TokenizerChoice(tokenizer_type=kind, vocab_file=path))
    assert encoder.encode(["Going"]) == [expected]
    assert (encoder.vocab_size, encoder.end_id) == (8, None)


def test_sentencepiece_models_are_read(tmp_path: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    text = tmp_path / "text"
    text.write_text("\n".join(f"the cat number {number} sat on the mat" for number in range(50)))
    library.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "mt5"), vocab_size=40, minloglevel=2, hard_vocab_limit=False
    )
    path = tmp_path / "mt5.model"
    encoder = build(of_model(path))
    model = library.SentencePieceProcessor(model_file=str(path))
    assert encoder.encode(["the cat", ""]) == [model.encode("the cat"), []]
    assert (encoder.vocab_size, encoder.end_id) == (model.get_piece_size(), model.eos_id())
    with pytest.raises(UsageError, match="has no token 'zz'"):
        build(of_model(path, "zz"))
    path.write_bytes(b"broken")
    with pytest.raises(UsageError, match="is no SentencePiece model"):
        build(of_model(path))


def test_sentencepiece_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    (tmp_path / "mt5.model").touch()
    with pytest.raises(UsageError, match=r"needs the library \(pip install 'nlp-bench\[train\]'\); or convert it to"):
        build(TokenizerChoice(tokenizer_type="SentencePieceTokenizer", tokenizer_model=tmp_path / "mt5.model"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "tokenizer_type: no tokenizer is given"),
        ({"vocab_file": Path("vocab.txt")}, "does not tell whether case counts; add --tokenizer-type"),
        ({"vocab_file": Path("vocab.json")}, "merge_file: not given; GPT2BPETokenizer needs"),
        ({"tokenizer_model": Path("t.json"), "merge_file": Path("m")}, "m: HuggingFaceTokenizer has no such file"),
        ({"tokenizer_type": "GPT2BPETokeniser"}, "'GPT2BPETokeniser' is not known; did you mean GPT2BPETokenizer"),
        ({"tokenizer_type": "BertWordPieceCase"}, "vocab_file: not given"),
    ],
)
def test_types_and_files_that_do_not_go_together_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TokenizerChoice(**given if "tokenizer_type" in given else {"tokenizer_type": type_of(**FILES | given)} | given)


def test_files_that_are_something_else_are_named(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("go\n")
    with pytest.raises(UsageError, match=r"tokenizer_model: .* is no tokenizer.json of Hugging Face"):
        build(of(path))
    with pytest.raises(UsageError, match=r"vocab_file: .* is no vocab.txt of BERT"):
        build(TokenizerChoice(tokenizer_type="BertWordPieceCase", vocab_file=path))
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UsageError, match=r"tokenizer_model: .* is a git-lfs pointer"):
        build(of(path))
