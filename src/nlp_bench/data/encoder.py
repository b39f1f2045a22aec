"""A tokenizer at work: texts to tokens. The libraries (tokenizers, sentencepiece) are loaded when one is built."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlp_bench.data import bpe
from nlp_bench.data.tokenizer import BERT_TYPES, GPT2, HUGGING_FACE, TokenizerChoice
from nlp_bench.errors import UsageError
from nlp_bench.files import parse_json
from nlp_bench.packages import remedy

END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
"""What the tokenizer.json of GPT-2, Llama 3, T5 and Llama 2, Gemma call the end of a text."""


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Turns texts into tokens, without special tokens at their ends."""

    encode: Callable[[Sequence[str]], list[list[int]]]
    """Texts to the tokens of each."""
    vocab_size: int
    """One more than the greatest token."""
    end_id: int | None
    """Token that ends a document, None where the tokenizer names none."""
    library: str
    """The library that does it, with its version: another one may cut words in another way."""


def build(choice: TokenizerChoice) -> Encoder:
    """Load the files; raises UsageError where they are not what the type says, or lack the end token that was asked for."""
    paths = choice.paths()
    if choice.tokenizer_type == GPT2:
        tokenizer = bpe.load(paths["vocab_file"], paths["merge_file"])
        return _of_tokenizers(tokenizer, choice, [bpe.END_OF_DOCUMENT])
    if choice.tokenizer_type == HUGGING_FACE:
        return _of_tokenizers(_hugging_face(paths["tokenizer_model"]), choice, _named_ends(paths["tokenizer_model"]))
    if choice.tokenizer_type in BERT_TYPES:
        lower = choice.tokenizer_type == BERT_TYPES[0]
        return _of_tokenizers(_word_piece(paths["vocab_file"], lower=lower), choice, [])
    return _sentence_piece(paths["tokenizer_model"], choice.eod_token)


def _of_tokenizers(tokenizer: Any, choice: TokenizerChoice, ends: Sequence[str]) -> Encoder:
    """Wrap a `tokenizers.Tokenizer`; `ends` are the names of its end token, the likeliest first."""
    import tokenizers  # noqa: PLC0415  # loaded only where text is encoded

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [found.ids for found in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    if choice.eod_token is not None and tokenizer.token_to_id(choice.eod_token) is None:
        raise UsageError(f"eod_token: the tokenizer has no token {choice.eod_token!r}; name one that it has")
    wanted = [choice.eod_token] if choice.eod_token is not None else ends
    known = (found for name in wanted if (found := tokenizer.token_to_id(name)) is not None)
    vocab_size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    library = f"tokenizers {tokenizers.__version__}"
    return Encoder(encode=encode, vocab_size=vocab_size, end_id=next(known, None), library=library)


def _hugging_face(path: Path) -> Any:
    from tokenizers import Tokenizer  # noqa: PLC0415  # loaded only where text is encoded

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        what = "make one with the transformers library: AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)"
        raise UsageError(f"tokenizer_model: {path} is no tokenizer.json of Hugging Face: {error}; {what}") from error
    tokenizer.no_truncation()  # some files ask for 512 tokens at most, which would cut documents
    tokenizer.no_padding()
    return tokenizer


def _named_ends(path: Path) -> list[str]:
    """Return the end-of-text token that the files beside a tokenizer.json name, else the usual ones."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            token = parse_json((path.parent / name).read_text(encoding="utf-8")).get("eos_token")
        except (OSError, ValueError, AttributeError):
            continue
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return [token]
    return list(END_TOKENS)


def _word_piece(path: Path, *, lower: bool) -> Any:
    from tokenizers import BertWordPieceTokenizer  # noqa: PLC0415  # loaded only where text is encoded

    try:
        # strip_accents follows lowercase where it is not given, as in BERT's own code.
        return BertWordPieceTokenizer(str(path), lowercase=lower)._tokenizer  # noqa: SLF001  # the class hides batches
    except Exception as error:  # the library raises bare Exception and TypeError
        raise UsageError(f"vocab_file: {path} is no vocab.txt of BERT: {error}") from error


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
