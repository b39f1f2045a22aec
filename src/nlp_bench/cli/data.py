"""Training data: `nlp-bench data` and `data prepare`."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.cli.options import overwriting
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import argument, flag, given, spellings, value
from nlp_bench.config.values import count, size
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.data.prepare import PrepareRequest

MAKE, PREPARE = "without prepare", "prepare"


@immutable
class Data(Command):
    """Make training data: a small invented corpus by default, or your own text, as PREFIX.bin and PREFIX.idx.

    (nothing)          an invented corpus in build/data
    prepare INPUT...   your own text: JSON lines in files, folders or 'patterns*', plain, .gz, .xz, .zst or .bz2
                       (OSCAR, the Pile, mC4), encoded by all cores; what is killed continues when the same command is given again
    The tokenizer's options have Megatron-LM's names and meaning; docs/data.md describes formats, records and rules.
    """

    EXAMPLE = """nlp-bench data
  nlp-bench data prepare oscar-1GB.jsonl.xz --output oscar/gpt2 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --append-eod
  nlp-bench data prepare 'pile/train/*.jsonl.zst' --output pile/ --tokenizer-model llama3/tokenizer.json --append-eod --workers 64
  nlp-bench data prepare 'multilingual/c4-de.tfrecord-*.json.gz' --output mc4/de --tokenizer-model mt5.model --skip-broken
  nlp-bench data prepare wiki/ --output wiki/bert --tokenizer-type BertWordPieceLowerCase --vocab-file vocab.txt --split-sentences"""

    words: tuple[str, ...] = argument("prepare INPUT", nargs="*", default=())
    """Prepare these files, folders or patterns."""
    output: str | None = value(metavar="PATH")
    """Folder to make (default: build/data of this checkout); prepare: prefix or folder."""
    seed: int | None = value(read=int, group=MAKE)  # Seed of the invented corpus (default: 1).
    documents: int | None = value(read=count, group=MAKE)  # Documents to invent (default: 5000).
    vocab_size: int | None = value(read=size, group=MAKE)  # Tokens to train (default: 4096).
    json_key: str | None = value(metavar="KEY", group=PREPARE)  # Key of the text in each line (default: text).
    vocab_file: Path | None = value(metavar="FILE", group=PREPARE)
    """vocab.json of your byte-level BPE, or BERT's vocab.txt."""
    merge_file: Path | None = value(metavar="FILE", group=PREPARE)  # merges.txt of your byte-level BPE.
    append_eod: bool = flag(group=PREPARE)  # End each of your documents with the end token.
    tokenizer_type: str | None = value(metavar="TYPE", group=PREPARE)
    """GPT2BPETokenizer, HuggingFaceTokenizer, BertWordPieceLowerCase, BertWordPieceCase or SentencePieceTokenizer (default: what the
    files tell)."""
    tokenizer_model: Path | None = value(metavar="FILE", group=PREPARE)
    """tokenizer.json of Hugging Face (or its folder), or SentencePiece's .model."""
    eod_token: str | None = value(metavar="TEXT", group=PREPARE)
    """The end token of --append-eod, where the tokenizer names none."""
    split_sentences: bool = flag(group=PREPARE)  # One sequence per sentence, as BERT's samples need.
    skip_broken: bool = flag(group=PREPARE)  # Count broken lines in place of stopping at the first.
    workers: int | None = value(read=count, group=PREPARE)  # Processes that encode (default: all cores).
    keep_shards: bool = flag(group=PREPARE)  # Keep PREFIX.shards, to add more input later.
    overwrite: bool = overwriting("replace a result of other input or parameters", PREPARE)

    def run(self) -> int:
        if self.words and self.words[0] != "prepare":
            raise UsageError(f"unknown word {self.words[0]!r}: write nlp-bench data prepare INPUT...")
        here, others = (PREPARE, MAKE) if self.words else (MAKE, PREPARE)
        for one in fields(self):
            if one.metadata.get("group") == others and getattr(self, one.name) not in {None, False}:
                raise UsageError(f"{spellings(Data, one.name)[0]} does not go with nlp-bench data {here}")
        return self._prepare() if self.words else self._make()

    def _make(self) -> int:
        from nlp_bench.config.catalog import root  # --help needs none of these
        from nlp_bench.data import PREFIX, default_folder
        from nlp_bench.data.maker import DataRequest, make_data

        output = Path(self.output) if self.output else default_folder(root())
        existed = (output / "data.json").exists()
        record, made = make_data(DataRequest(**given(self, DataRequest) | {"output": output}))
        anew = "made anew: what was there was not whole, or of other parameters" if existed else "made"
        state = anew if made else "already there"
        print(f"{output / PREFIX}: {_counts(record)} ({state})")
        return 0

    def _prepare(self) -> int:
        from nlp_bench.data.prepare import prepare

        request = self._request()
        record, made = prepare(request)
        print(f"{request.prefix}: {_counts(record)} ({'made' if made else 'already there'})")
        choice = request.tokenizer
        words = ["--data-path", request.prefix, "--tokenizer-type", choice.tokenizer_type]
        for field in choice.paths():
            words += ["--" + field.replace("_", "-"), str(getattr(choice, field))]
        print(f"arguments for a training: {shlex.join(words)}")
        if record["num_empty"] or record["num_broken"]:
            say(f"left out: {record['num_empty']} documents without tokens, {record['num_broken']} broken lines")
        say(*record["broken"])
        return 0

    def _request(self) -> "PrepareRequest":
        from nlp_bench.data.prepare import PrepareRequest
        from nlp_bench.data.shards import Reading
        from nlp_bench.data.tokenizer import TokenizerChoice, type_of

        if self.output is None:
            raise UsageError("output: not given; add --output PREFIX, or --output FOLDER/")
        files = {name: getattr(self, name) for name in ("vocab_file", "merge_file", "tokenizer_model")}
        kind = self.tokenizer_type or type_of(**files)
        return PrepareRequest(
            inputs=self.words[1:],
            tokenizer=TokenizerChoice(tokenizer_type=kind, eod_token=self.eod_token, **files),
            reading=Reading(**given(self, Reading)),
            **given(self, PrepareRequest),
        )


def _counts(record: dict[str, Any]) -> str:
    return f"{record['num_documents']} documents, {record['num_tokens']} tokens, vocabulary {record['vocab_size']}"
