"""The files of the data: the sizes of their vocabularies, and whether they are whole. No torch here."""

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.data.blend import parse_blend
from nlp_bench.errors import UsageError, explained, require
from nlp_bench.files import parse_json

if TYPE_CHECKING:
    from nlp_bench.train.settings import Settings

NO_VOCABULARY = "vocab_size: not given; add --vocab-size N, --vocab-file FILE or --tokenizer-model tokenizer.json"


def check_files(s: "Settings") -> None:
    """Raise UsageError where a file of the data is damaged, or was made with another tokenizer than that of the training."""
    if not s.data_path:
        return
    from nlp_bench.data.indexed import check_indexed, check_tokenizer  # noqa: PLC0415  # only where files are read

    names = ("tokenizer_type", "vocab_file", "merge_file", "tokenizer_model", "vocab_size")
    try:
        for prefix in parse_blend(s.data_path).prefixes:
            check_indexed(prefix)
            check_tokenizer(prefix, **{name: getattr(s, name) for name in names})
    except PermissionError as error:
        raise UsageError(
            f"data_path: {error.filename}: {explained(error)}; or take other data: --data-path, or `nlp-bench data` with NLP_BENCH_BUILD_DIR"
        ) from error


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
    """Return piece to token id of a vocab.txt, a piece per line; None without one. Raises UsageError if it is unreadable or lacks [CLS], [SEP] or [MASK]."""
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
