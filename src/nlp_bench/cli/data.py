"""Make training data: a small invented corpus by default, or your own JSON lines, as PREFIX.bin and PREFIX.idx."""

import argparse
from pathlib import Path

EXAMPLE = "nlp-bench data --input text.jsonl.gz --vocab-file vocab.json --merge-file merges.txt --output mine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench data`."""
    parser.add_argument("--output", type=Path, help="folder to make (default: build/data of this checkout)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the invented corpus (default: %(default)s)")
    parser.add_argument("--documents", type=int, default=5000, help="documents to invent (default: %(default)s)")
    parser.add_argument("--vocab-size", type=int, default=4096, help="tokens to train (default: %(default)s)")
    parser.add_argument("--input", type=Path, help="your own text: one JSON object per line, plain or .gz")
    parser.add_argument("--json-key", default="text", help="key of the text in each line (default: %(default)s)")
    parser.add_argument("--vocab-file", type=Path, help="vocab.json of your byte-level BPE")
    parser.add_argument("--merge-file", type=Path, help="merges.txt of your byte-level BPE")
    parser.add_argument("--append-eod", action="store_true", help="end each of your documents with <|endoftext|>")


def run(options: argparse.Namespace) -> int:
    """Make the data; print its prefix and size; return 0."""
    from nlp_bench.config.catalog import root  # --help needs none of these
    from nlp_bench.data import PREFIX, default_folder
    from nlp_bench.data.maker import DataRequest, make_data

    options.output = options.output or default_folder(root())
    existed = (options.output / "data.json").exists()
    record, made = make_data(DataRequest(**vars(options)))
    state = "already there" if not made else "made anew: the parameters are other ones" if existed else "made"
    counts = f"{record['num_documents']} documents, {record['num_tokens']} tokens, vocabulary {record['vocab_size']}"
    print(f"{options.output / PREFIX}: {counts} ({state})")
    return 0
