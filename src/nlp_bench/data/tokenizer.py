"""Tokenizers, by Megatron-LM's names of types and files. Their libraries are imported when one is built."""

import importlib
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from nlp_bench.errors import UsageError, nearest
from nlp_bench.files import LFS_POINTER, opened, parse_json, sha256_of
from nlp_bench.immutable import immutable
from nlp_bench.packages import remedy

GPT2, HUGGING_FACE, SENTENCE_PIECE = "GPT2BPETokenizer", "HuggingFaceTokenizer", "SentencePieceTokenizer"
BERT_TYPES = ("BertWordPieceLowerCase", "BertWordPieceCase")
FILES = {
    GPT2: (("vocab_file", "merge_file"), "vocab.json and merges.txt of a byte-level BPE"),
    HUGGING_FACE: (("tokenizer_model",), "a tokenizer.json of the Hugging Face tokenizers library, or a folder that holds one"),
    SENTENCE_PIECE: (("tokenizer_model",), "a SentencePiece .model"),
    **dict.fromkeys(BERT_TYPES, (("vocab_file",), "vocab.txt, one WordPiece per line")),
}  # fmt: skip
"""Type to the names of its file arguments, which are Megatron-LM's, and what they are."""
END_OF_DOCUMENT = "<|endoftext|>"
END_TOKENS = (END_OF_DOCUMENT, "<|end_of_text|>", "</s>", "<eos>")  # of GPT-2, Llama 3, T5 and Llama 2, Gemma


def require_file(field: str, path: Path) -> None:
    """Raise UsageError unless `path` is a readable file and no git-lfs pointer."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):  # its writer would end with the first look
            raise UsageError(f"{field}: {path} is a pipe, and it is read more than once; write it into a file")
        with opened(path) as stream:
            if stream.read(len(LFS_POINTER)) == LFS_POINTER:
                raise UsageError(f"{field}: {path} is a git-lfs pointer, not the file; fetch it with git lfs pull")
    except OSError as error:
        raise UsageError(f"{field}: cannot read {path}: {error.strerror}") from error


@immutable
class TokenizerChoice:
    """A type and its files."""

    tokenizer_type: str  # one of FILES
    vocab_file: Path | None = None  # vocab.json (GPT-2) or vocab.txt (BERT)
    merge_file: Path | None = None  # merges.txt (GPT-2)
    tokenizer_model: Path | None = None  # tokenizer.json (Hugging Face), a folder with one, or a SentencePiece .model
    eod_token: str | None = None  # text of the token that ends a document; None: the tokenizer's own

    def __post_init__(self) -> None:
        kind = self.tokenizer_type
        if kind not in FILES:
            raise UsageError(f"tokenizer_type: {kind!r} is not known{nearest(kind, list(FILES))}")
        wanted, what = FILES[kind]
        for field in ("vocab_file", "merge_file", "tokenizer_model"):
            option, value = "--" + field.replace("_", "-"), getattr(self, field)
            if field in wanted and value is None:
                raise UsageError(f"{field}: not given; {kind} needs {what}: add {option} FILE")
            if field not in wanted and value is not None:
                raise UsageError(f"{field}: {value}: {kind} has no such file; leave {option} out")

    def paths(self) -> dict[str, Path]:
        """Return argument to file; raises UsageError for one that is missing or a git-lfs pointer."""
        kind = self.tokenizer_type
        found = {field: tokenizer_file(kind, Path(getattr(self, field))) for field in FILES[kind][0]}
        for field, path in found.items():
            require_file(field, path)
        return found

    def identity(self) -> dict[str, Any]:
        """Return what determines the tokens: type, end token, and name, size and sha256 of each file."""
        files = {
            field: {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for field, path in self.paths().items()
        }
        return {"type": self.tokenizer_type, "files": files, "eod_token": self.eod_token}


def type_of(*, vocab_file: Path | None, merge_file: Path | None, tokenizer_model: Path | None) -> str:
    """Return the type that the files tell. Raises UsageError where they tell none."""
    if tokenizer_model is not None:
        return SENTENCE_PIECE if tokenizer_model.suffix == ".model" else HUGGING_FACE
    if merge_file is None and vocab_file is None:
        raise UsageError(
            "tokenizer_type: no tokenizer is given; add --vocab-file vocab.json --merge-file merges.txt (GPT-2), or "
            "--tokenizer-model tokenizer.json (Hugging Face)"
        )
    if merge_file is None and vocab_file is not None and vocab_file.suffix == ".txt":
        remedy = f"add --tokenizer-type {' or '.join(BERT_TYPES)}"
        raise UsageError(f"tokenizer_type: {vocab_file} does not tell whether case counts; {remedy}")
    return GPT2


def tokenizer_file(tokenizer_type: str, path: Path) -> Path:
    """Return the tokenizer's file: a Hugging Face tokenizer may be given by its folder."""
    return path / "tokenizer.json" if tokenizer_type == HUGGING_FACE and path.is_dir() else path


@immutable
class Encoder:
    """Converts texts to tokens, without special tokens at their ends."""

    encode: Callable[[Sequence[str]], list[list[int]]]  # texts to the tokens of each
    vocab_size: int  # greatest token + 1
    end_id: int | None  # token that ends a document, None where the tokenizer has none
    library: str  # name and version of the library: another one may split words differently


def build(choice: TokenizerChoice) -> Encoder:
    """Load the files; raises UsageError where they are not of the type, or lack the given end token."""
    paths, kind = choice.paths(), choice.tokenizer_type
    if kind == SENTENCE_PIECE:
        return _sentence_piece(paths["tokenizer_model"], choice.eod_token)
    from tokenizers import BertWordPieceTokenizer, Tokenizer  # noqa: PLC0415  # loaded only where text is encoded

    if kind == GPT2:
        return encoder_of(byte_pairs(paths["vocab_file"], paths["merge_file"]), [END_OF_DOCUMENT], choice.eod_token)
    if kind == HUGGING_FACE:
        path = paths["tokenizer_model"]
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            what = "make one with the transformers library: AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)"
            raise UsageError(
                f"tokenizer_model: {path} is no tokenizer.json of Hugging Face: {error}; {what}"
            ) from error
        tokenizer.no_truncation()  # some files set a limit of 512 tokens, which would cut documents
        tokenizer.no_padding()
        return encoder_of(tokenizer, _named_ends(path), choice.eod_token)
    path = paths["vocab_file"]
    try:
        # strip_accents defaults to lowercase, as in BERT's own code.
        pieces = BertWordPieceTokenizer(str(path), lowercase=kind == BERT_TYPES[0])
    except Exception as error:  # the library raises bare Exception and TypeError
        raise UsageError(f"vocab_file: {path} is no vocab.txt of BERT: {error}") from error
    return encoder_of(pieces._tokenizer, [], choice.eod_token)  # noqa: SLF001  # the class has no encode_batch_fast


def encoder_of(tokenizer: Any, ends: Sequence[str], eod_token: str | None = None) -> Encoder:
    """Wrap a `tokenizers.Tokenizer`; `ends` are candidates for its end token, the likeliest first."""
    import tokenizers  # noqa: PLC0415  # loaded only where text is encoded

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [found.ids for found in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    if eod_token is not None and tokenizer.token_to_id(eod_token) is None:
        raise UsageError(f"eod_token: the tokenizer has no token {eod_token!r}; name one that it has")
    known = (tokenizer.token_to_id(name) for name in ([eod_token] if eod_token is not None else ends))
    return Encoder(
        encode=encode,
        vocab_size=1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1),
        end_id=next((found for found in known if found is not None), None),
        library=f"tokenizers {tokenizers.__version__}",
    )


def train_byte_pairs(documents: Iterable[str], vocab_size: int) -> Any:
    """Train a byte-level BPE like GPT-2's; raises UsageError when the text is too small for `vocab_size` tokens."""
    from tokenizers import models, pre_tokenizers, trainers  # noqa: PLC0415  # as above

    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_DOCUMENT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    found = tokenizer.get_vocab_size()
    if found != vocab_size:
        raise UsageError(f"vocab_size: {vocab_size} asked for, but this text gives {found} tokens; ask for {found}")
    return tokenizer


def byte_pairs(vocab_file: Path, merge_file: Path) -> Any:
    """Read a byte-level BPE; raises UsageError when the files are none."""
    from tokenizers import models  # noqa: PLC0415  # as above

    try:
        return _byte_level(models.BPE.from_file(str(vocab_file), str(merge_file)))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(f"vocab_file: {vocab_file} and {merge_file} are no byte-level BPE: {error}") from error


def _byte_level(model: Any) -> Any:
    from tokenizers import Tokenizer, decoders, pre_tokenizers  # noqa: PLC0415  # as above

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _named_ends(path: Path) -> list[str]:
    """Return the end-of-text token by the files next to a tokenizer.json, else END_TOKENS."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            token = parse_json((path.parent / name).read_text(encoding="utf-8")).get("eos_token")
        except (OSError, ValueError, AttributeError):
            continue
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return [token]
    return list(END_TOKENS)


def _sentence_piece(path: Path, eod_token: str | None) -> Encoder:
    try:
        library = importlib.import_module("sentencepiece")
    except ImportError:
        raise UsageError(
            f"tokenizer_model: {path}: a SentencePiece model needs the library ({remedy('sentencepiece')}); or convert it "
            "to tokenizer.json and use --tokenizer-type HuggingFaceTokenizer"
        ) from None
    try:
        model = library.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise UsageError(f"tokenizer_model: {path} is no SentencePiece model: {error}") from error

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return list(model.encode(list(texts), out_type=int, num_threads=1))

    end = model.eos_id() if eod_token is None else model.piece_to_id(eod_token)
    if eod_token is not None and model.id_to_piece(end) != eod_token:  # unknown pieces give the id of <unk>
        raise UsageError(f"eod_token: the tokenizer has no token {eod_token!r}; name one that it has")
    return Encoder(
        encode=encode,
        vocab_size=model.get_piece_size(),
        end_id=end if end >= 0 else None,
        library=f"sentencepiece {library.__version__}",
    )
