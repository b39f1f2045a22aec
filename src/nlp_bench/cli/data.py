"""Make training data: a small invented corpus by default, or your own text, as PREFIX.bin and PREFIX.idx.

(nothing)          an invented corpus in build/data; with --input one file of your own text, in one process
prepare INPUT...   your own text at full size: JSON lines in files, folders or 'patterns*', plain, .gz, .xz, .zst or .bz2
                   (OSCAR, the Pile, mC4), encoded by all cores; what is killed continues when the same command is given again
The tokenizer's options have Megatron-LM's names and meaning; docs/data.md describes formats, records and rules.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.cli.options import add_overwrite
from nlp_bench.config.values import count, size
from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from nlp_bench.data.prepare import PrepareRequest

EXAMPLE = """nlp-bench data
  nlp-bench data prepare oscar-1GB.jsonl.xz --output oscar/gpt2 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --append-eod
  nlp-bench data prepare 'pile/train/*.jsonl.zst' --output pile/ --tokenizer-model llama3/tokenizer.json --append-eod --workers 64
  nlp-bench data prepare 'multilingual/c4-de.tfrecord-*.json.gz' --output mc4/de --tokenizer-model mt5.model --skip-broken
  nlp-bench data prepare wiki/ --output wiki/bert --tokenizer-type BertWordPieceLowerCase --vocab-file vocab.txt --split-sentences"""
_DEFAULTS = {"seed": 1, "documents": 5000, "vocab_size": 4096}
_MAKE_ONLY = (*_DEFAULTS, "input")
_PREPARE_ONLY = (
    "tokenizer_type", "tokenizer_model", "eod_token", "split_sentences", "skip_broken", "workers", "keep_shards", "overwrite",
)  # fmt: skip
_BOTH = ("output", "json_key", "vocab_file", "merge_file", "append_eod")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench data` and of `nlp-bench data prepare`."""
    parser.add_argument("words", metavar="prepare INPUT", nargs="*", help="prepare these files, folders or patterns")
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="folder to make (default: build/data of this checkout); prepare: prefix or folder",
    )
    parser.add_argument("--json-key", metavar="KEY", help="key of the text in each line (default: text)")
    parser.add_argument(
        "--vocab-file", type=Path, metavar="FILE", help="vocab.json of your byte-level BPE, or BERT's vocab.txt"
    )
    parser.add_argument("--merge-file", type=Path, metavar="FILE", help="merges.txt of your byte-level BPE")
    parser.add_argument("--append-eod", action="store_true", help="end each of your documents with the end token")
    _add_invented(parser.add_argument_group("without prepare"))
    _add_prepare(parser.add_argument_group("prepare"))


def _add_invented(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--seed", type=int, metavar="N", help="seed of the invented corpus (default: 1)")
    group.add_argument("--documents", type=count, metavar="N", help="documents to invent (default: 5000)")
    group.add_argument("--vocab-size", type=size, metavar="N", help="tokens to train (default: 4096)")
    group.add_argument("--input", type=Path, metavar="FILE", help="your own text: one JSON object per line")


def _add_prepare(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--tokenizer-type", metavar="TYPE",
        help="GPT2BPETokenizer, HuggingFaceTokenizer, BertWordPieceLowerCase, BertWordPieceCase or SentencePieceTokenizer "
        "(default: what the files tell)",
    )  # fmt: skip
    group.add_argument(
        "--tokenizer-model",
        type=Path,
        metavar="FILE",
        help="tokenizer.json of Hugging Face (or its folder), or SentencePiece's .model",
    )
    group.add_argument(
        "--eod-token", metavar="TEXT", help="the end token of --append-eod, where the tokenizer names none"
    )
    group.add_argument(
        "--split-sentences", action="store_true", help="one sequence per sentence, as BERT's samples need"
    )
    group.add_argument(
        "--skip-broken", action="store_true", help="count broken lines in place of stopping at the first"
    )
    group.add_argument("--workers", type=count, metavar="N", help="processes that encode (default: all cores)")
    group.add_argument("--keep-shards", action="store_true", help="keep PREFIX.shards, to add more input later")
    add_overwrite(group, "replace a result of other input or parameters")


def run(options: argparse.Namespace) -> int:
    """Make or prepare the data; print prefix and size; return 0."""
    if options.words and options.words[0] != "prepare":
        raise UsageError(f"unknown word {options.words[0]!r}: write nlp-bench data prepare INPUT..., or --input FILE")
    others, what = (_MAKE_ONLY, "prepare") if options.words else (_PREPARE_ONLY, "without prepare")
    for name in others:
        if getattr(options, name) not in {None, False}:
            raise UsageError(f"--{name.replace('_', '-')} does not go with nlp-bench data {what}")
    options.json_key = "text" if options.json_key is None else options.json_key
    return _prepare(options) if options.words else _make(options)


def _make(options: argparse.Namespace) -> int:
    from nlp_bench.config.catalog import root  # --help needs none of these
    from nlp_bench.data import PREFIX, default_folder
    from nlp_bench.data.maker import DataRequest, make_data

    given = {name: getattr(options, name) for name in (*_MAKE_ONLY, *_BOTH)}
    values = {name: _DEFAULTS.get(name) if value is None else value for name, value in given.items()}
    output = Path(options.output) if options.output else default_folder(root())
    existed = (output / "data.json").exists()
    record, made = make_data(DataRequest(**values | {"output": output}))  # type: ignore[arg-type]  # one by one above
    state = "already there" if not made else "made anew: the parameters are other ones" if existed else "made"
    counts = f"{record['num_documents']} documents, {record['num_tokens']} tokens, vocabulary {record['vocab_size']}"
    print(f"{output / PREFIX}: {counts} ({state})")
    return 0


def _prepare(options: argparse.Namespace) -> int:
    from nlp_bench.data.prepare import prepare

    request = _request(options)
    record, made = prepare(request)
    state = "made" if made else "already there"
    counts = f"{record['num_documents']} documents, {record['num_tokens']} tokens, vocabulary {record['vocab_size']}"
    print(f"{request.prefix}: {counts} ({state})")
    print(f"arguments for a training: {_training_words(request)}")
    _say_skipped(record)
    return 0


def _request(options: argparse.Namespace) -> "PrepareRequest":
    from nlp_bench.data.prepare import PrepareRequest
    from nlp_bench.data.shards import Reading
    from nlp_bench.data.tokenizer import choose

    if options.output is None:
        raise UsageError("output: not given; add --output PREFIX, or --output FOLDER/")
    tokenizer = {
        name: getattr(options, name)
        for name in ("tokenizer_type", "vocab_file", "merge_file", "tokenizer_model", "eod_token")
    }
    reading = {name: getattr(options, name) for name in ("json_key", "append_eod", "split_sentences", "skip_broken")}
    return PrepareRequest(
        inputs=tuple(options.words[1:]),
        output=options.output,
        tokenizer=choose(**tokenizer),
        reading=Reading(**reading),
        workers=options.workers,
        keep_shards=options.keep_shards,
        overwrite=options.overwrite,
    )


def _training_words(request: "PrepareRequest") -> str:
    import shlex

    choice = request.tokenizer
    words = ["--data-path", request.prefix, "--tokenizer-type", choice.tokenizer_type]
    for field in choice.paths():
        words += ["--" + field.replace("_", "-"), str(getattr(choice, field))]
    return shlex.join(words)


def _say_skipped(record: dict[str, Any]) -> None:
    if record["num_empty"] or record["num_broken"]:
        empty, broken = record["num_empty"], record["num_broken"]
        print(f"nlp-bench: left out: {empty} documents without tokens, {broken} broken lines", file=sys.stderr)
    for text in record["broken"]:
        print(f"nlp-bench: {text}", file=sys.stderr)
