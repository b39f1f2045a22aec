"""Settings of the data: vocabulary, tokenizer and tokens."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.data.blend import parse_blend
from nlp_bench.errors import UsageError
from nlp_bench.files import parse_json
from nlp_bench.train.settings.rules import one_of, require

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

NO_VOCABULARY = "vocab_size: not given; add --vocab-size N, --vocab-file FILE or --tokenizer-model tokenizer.json"
TOKENIZERS = (
    "GPT2BPETokenizer", "HuggingFaceTokenizer", "BertWordPieceCase", "BertWordPieceLowerCase", "SentencePieceTokenizer",
    "NullTokenizer",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Settings of the data."""

    vocab_size: int | None = None
    """Tokens in the vocabulary; default: the entries of --vocab-file or --tokenizer-model."""
    vocab_extra_ids: int = 0
    """Tokens added to the vocabulary as t5's sentinels, one for each span that is cut out of a text (100 in T5)."""
    make_vocab_size_divisible_by: int = 128
    """The vocabulary is padded to a multiple of this times the tensor-parallel size."""
    tokenizer_type: str = one_of(*TOKENIZERS, default="GPT2BPETokenizer")
    """Kind of the tokenizer; NullTokenizer needs --vocab-size and no files."""
    tokenizer_model: str | None = None
    """tokenizer.json of a Hugging Face tokenizer, or SentencePiece's .model."""
    vocab_file: str | None = None
    """vocab.json of the byte-level BPE tokenizer, or vocab.txt of a WordPiece tokenizer."""
    merge_file: str | None = None
    """merges.txt of the byte-level BPE tokenizer; training itself does not read it."""
    data_path: tuple[str, ...] = ()
    """Prefix of the indexed data, PREFIX.bin and PREFIX.idx; several, or WEIGHT PREFIX WEIGHT PREFIX ..., are blended."""
    data_cache_path: str | None = None
    """Folder for the sample index; default: the folder `cache` beside the data."""
    mock_data: bool = False
    """Train on random tokens instead of data."""
    split: str = "969,30,1"
    """Weights of training, validation and test documents; only the training share is read."""
    mask_prob: float = 0.15
    """Share of the tokens that bert and t5 have to guess; above 0."""
    short_seq_prob: float = 0.0
    """Share of bert's and t5's samples that are cut short and padded (Megatron-LM's default is 0.1); mock samples never are."""


def check_data(s: "Settings") -> None:
    """Raise UsageError for the first rule about the data that is broken."""
    require(s.mock_data != bool(s.data_path), "data_path: give exactly one of --data-path PREFIX and --mock-data")
    if s.data_path:
        parse_blend(s.data_path)
    try:
        weights = [float(word) for word in s.split.split(",")]
    except ValueError as error:
        raise UsageError(f"split: {s.split!r} is no list of weights like 969,30,1") from error
    require(weights[0] > 0 and min(weights) >= 0, f"split: {s.split!r} leaves no documents for training")
    entries = vocabulary_entries(s)
    if s.vocab_size is None:
        require(entries is not None, NO_VOCABULARY)
    elif entries is not None:
        file = s.vocab_file or s.tokenizer_model
        require(s.vocab_size >= entries, f"vocab_size: {s.vocab_size} is less than the {entries} entries of {file}")


def check_files(s: "Settings") -> None:
    """Raise UsageError where a file of the data is damaged, or was made with another tokenizer than that of the training."""
    if not s.data_path:
        return
    from nlp_bench.data.indexed import check_indexed, check_tokenizer  # noqa: PLC0415  # only where files are read

    names = ("tokenizer_type", "vocab_file", "merge_file", "tokenizer_model", "vocab_size")
    for prefix in parse_blend(s.data_path).prefixes:
        check_indexed(prefix)
        check_tokenizer(prefix, **{name: getattr(s, name) for name in names})


def resolved_vocab_size(s: "Settings") -> int:
    """Return the size of the vocabulary, sentinels included; raises UsageError where neither an option nor a file states it."""
    entries = s.vocab_size or vocabulary_entries(s)
    if entries is None:
        raise UsageError(NO_VOCABULARY)
    return entries + s.vocab_extra_ids


def vocabulary_entries(s: "Settings") -> int | None:
    """Return the greatest token id of the vocabulary's file + 1, or None without one; raises UsageError if unreadable."""
    if s.vocab_file is not None:
        if s.vocab_file.endswith(".txt"):
            return len(wordpiece_numbers(s) or {})
        return _greatest("vocab_file", s.vocab_file, lambda found: found.values()) + 1
    if s.tokenizer_model is not None and s.tokenizer_model.endswith(".json"):
        return _greatest("tokenizer_model", s.tokenizer_model, _numbers) + 1
    return None


def wordpiece_numbers(s: "Settings") -> dict[str, int] | None:
    """Return piece to token id of a vocab.txt (one piece per line, as BERT's), None where there is none.

    Raises UsageError if it is unreadable or lacks [CLS], [SEP] or [MASK].
    """
    if s.vocab_file is None or not s.vocab_file.endswith(".txt"):
        return None
    pieces = _read("vocab_file", s.vocab_file).splitlines()
    numbers = {piece: number for number, piece in enumerate(pieces)}
    missing = [piece for piece in ("[CLS]", "[SEP]", "[MASK]") if piece not in numbers]
    require(not missing, f"vocab_file: {s.vocab_file} is no WordPiece vocabulary: it has no {', '.join(missing)}")
    return numbers


def _numbers(tokenizer: Any) -> Iterable[int]:
    """Return the token ids of a tokenizer.json (Hugging Face's tokenizers): of a table of pieces, or a list (Unigram)."""
    table = tokenizer["model"]["vocab"]
    added = (int(one["id"]) for one in tokenizer.get("added_tokens", ()))
    return chain(table.values() if isinstance(table, dict) else range(len(table)), added)


def _greatest(field: str, file: str, numbers: Callable[[Any], Iterable[int]]) -> int:
    try:
        return max(int(number) for number in numbers(parse_json(_read(field, file))))
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise UsageError(f"{field}: {file} is not a JSON object of token numbers: {error}") from error


def _read(field: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        remedy = "make one with nlp-bench data, or give --vocab-size N"
        raise UsageError(f"{field}: cannot read {file}: {why}; {remedy}") from error
