"""Byte-level BPE, as GPT-2 uses it: trained on our corpus or read from a user's vocab.json and merges.txt."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from nlp_bench.errors import UsageError

END_OF_DOCUMENT = "<|endoftext|>"
BATCH = 1000


def train(documents: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a tokenizer; raises UsageError when the text has fewer than `vocab_size` tokens to offer."""
    tokenizer = _byte_level(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END_OF_DOCUMENT], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(documents, trainer)
    found = tokenizer.get_vocab_size()
    if found != vocab_size:
        raise UsageError(f"vocab_size: {vocab_size} asked for, but this text gives {found} tokens; ask for {found}")
    return tokenizer


def load(vocab_file: Path, merge_file: Path) -> Tokenizer:
    """Read a tokenizer; raises UsageError when the two files are not those of a byte-level BPE."""
    try:
        return _byte_level(models.BPE.from_file(str(vocab_file), str(merge_file)))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(f"vocab_file: {vocab_file} and {merge_file} are no byte-level BPE: {error}") from error


def encode(tokenizer: Tokenizer, documents: Iterable[str], *, append_end: bool) -> Iterator[list[int]]:
    """Yield the tokens of each document that has any; raises UsageError when there is no end-of-document token."""
    end = tokenizer.token_to_id(END_OF_DOCUMENT)
    if append_end and end is None:
        raise UsageError(f"append_eod: the vocabulary has no {END_OF_DOCUMENT}; leave --append-eod out")
    suffix = [end] if append_end and end is not None else []
    source = iter(documents)
    while batch := list(islice(source, BATCH)):
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
            if encoding.ids:
                yield encoding.ids + suffix


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
