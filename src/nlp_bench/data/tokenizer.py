"""Which tokenizer: its type by Megatron-LM's names, its files, and what identifies it. Nothing heavy is loaded here."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlp_bench.data.present import require_file
from nlp_bench.errors import UsageError, nearest

GPT2, HUGGING_FACE, SENTENCE_PIECE = "GPT2BPETokenizer", "HuggingFaceTokenizer", "SentencePieceTokenizer"
BERT_TYPES = ("BertWordPieceLowerCase", "BertWordPieceCase")
FILES = {
    GPT2: ("vocab_file", "merge_file"),
    HUGGING_FACE: ("tokenizer_model",),
    SENTENCE_PIECE: ("tokenizer_model",),
    BERT_TYPES[0]: ("vocab_file",),
    BERT_TYPES[1]: ("vocab_file",),
}
"""Type, and the arguments that name its files (Megatron-LM's arguments of the same names)."""
KIND = {
    GPT2: "vocab.json and merges.txt of a byte-level BPE",
    HUGGING_FACE: "a tokenizer.json of the Hugging Face tokenizers library, or a folder that holds one",
    SENTENCE_PIECE: "a SentencePiece .model",
    BERT_TYPES[0]: "vocab.txt, one WordPiece per line",
    BERT_TYPES[1]: "vocab.txt, one WordPiece per line",
}
TOKENIZER_JSON = "tokenizer.json"
CHUNK_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class TokenizerChoice:
    """A type and exactly the files that this type has."""

    tokenizer_type: str
    """One of FILES."""
    vocab_file: Path | None = None
    """vocab.json (GPT-2) or vocab.txt (BERT)."""
    merge_file: Path | None = None
    """merges.txt (GPT-2)."""
    tokenizer_model: Path | None = None
    """tokenizer.json (Hugging Face), a folder that holds one, or a SentencePiece .model."""
    eod_token: str | None = None
    """Text of the token that ends a document; None: what the tokenizer itself names."""

    def __post_init__(self) -> None:
        """Refuse an unknown type, and files that are missing or belong to another type."""
        kind = self.tokenizer_type
        if kind not in FILES:
            raise UsageError(f"tokenizer_type: {kind!r} is not known{nearest(kind, list(FILES))}")
        for field in ("vocab_file", "merge_file", "tokenizer_model"):
            option = "--" + field.replace("_", "-")
            if field in FILES[kind] and getattr(self, field) is None:
                raise UsageError(f"{field}: not given; {kind} needs {KIND[kind]}: add {option} FILE")
            if field not in FILES[kind] and getattr(self, field) is not None:
                raise UsageError(f"{field}: {getattr(self, field)}: {kind} has no such file; leave {option} out")

    def paths(self) -> dict[str, Path]:
        """Return argument and file of each; raises UsageError for one that is missing or a git-lfs pointer."""
        found = {
            field: tokenizer_file(self.tokenizer_type, Path(getattr(self, field)))
            for field in FILES[self.tokenizer_type]
        }
        for field, path in found.items():
            require_file(field, path)
        return found

    def identity(self) -> dict[str, Any]:
        """Return what decides the tokens: type, and name, bytes and sha256 of each file."""
        files = {
            field: {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for field, path in self.paths().items()
        }
        return {"type": self.tokenizer_type, "files": files, "eod_token": self.eod_token}


def choose(
    *, tokenizer_type: str | None, vocab_file: Path | None, merge_file: Path | None, tokenizer_model: Path | None,
    eod_token: str | None = None,
) -> TokenizerChoice:  # fmt: skip
    """Return the choice; where no type is given the files tell it. Raises UsageError where they do not."""
    return TokenizerChoice(
        tokenizer_type=tokenizer_type or _told_type(vocab_file, merge_file, tokenizer_model),
        vocab_file=vocab_file,
        merge_file=merge_file,
        tokenizer_model=tokenizer_model,
        eod_token=eod_token,
    )


def _told_type(vocab_file: Path | None, merge_file: Path | None, tokenizer_model: Path | None) -> str:
    if tokenizer_model is not None:
        return SENTENCE_PIECE if tokenizer_model.suffix == ".model" else HUGGING_FACE
    if merge_file is not None:
        return GPT2
    if vocab_file is not None and vocab_file.suffix == ".txt":
        raise UsageError(
            f"tokenizer_type: {vocab_file} does not tell whether case counts; add --tokenizer-type {' or '.join(BERT_TYPES)}"
        )
    if vocab_file is not None:
        return GPT2
    raise UsageError(
        "tokenizer_type: no tokenizer is given; add --vocab-file vocab.json --merge-file merges.txt (GPT-2), or "
        "--tokenizer-model tokenizer.json (Hugging Face)"
    )


def tokenizer_file(tokenizer_type: str, path: Path) -> Path:
    """Return the file that counts: a Hugging Face tokenizer may be named by its folder."""
    return path / TOKENIZER_JSON if tokenizer_type == HUGGING_FACE and path.is_dir() else path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(CHUNK_BYTES):
            digest.update(block)
    return digest.hexdigest()
