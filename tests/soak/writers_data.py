"""The writers of data, checkpoints and builds, and the two ways to write that all others use."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nlp_bench import files
from nlp_bench.build import maker
from nlp_bench.build.environment import Extras, this_machine
from nlp_bench.data import shards
from nlp_bench.data.indexed import check_indexed
from nlp_bench.data.maker import DataRequest, make_data
from nlp_bench.data.prepare import PrepareRequest, prepare
from nlp_bench.data.tokenizer import TokenizerChoice
from soak.writer import Work, Writer, prepared_once

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork


def _encoders(workers: int, _context: object, begin: Any, words: Any) -> ThreadPoolExecutor:
    """Threads in the place of processes: those encode and write nothing, and each takes seconds to start."""
    return ThreadPoolExecutor(workers, initializer=begin, initargs=words)


shards.ProcessPoolExecutor = _encoders  # type: ignore[assignment,misc]
for item in (
    "dataset_helper",
    "apex_extensions",
    "transformer_engine",
    "elementwise_operators",
):  # compilers take minutes
    setattr(maker, item, lambda folder, *_: files.write_text(folder / "some.so", "built\n") or "built")
maker._verified = lambda *_: []  # type: ignore[assignment]  # likewise


def _stream(folder: Path) -> None:
    with files.writing(folder / "old.txt") as stream:
        for number in range(50):
            stream.write(b"new line %d\n" % number)
            stream.flush()


def _swap(folder: Path) -> None:
    files.recover_folder(folder / "data")
    fresh = folder / ".fresh"
    fresh.mkdir(exist_ok=True)
    try:
        for name in ("a", "b"):
            files.write_text(fresh / name, "new\n")
        files.replace_folder(fresh, folder / "data")
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _swap_before(folder: Path) -> None:
    (folder / "data").mkdir()
    for name in ("a", "b", "c"):
        (folder / "data" / name).write_text("old\n")


def _data_is_whole(folder: Path) -> None:
    if (folder / "data").exists():
        check_indexed(str(next((folder / "data").glob("*.idx")).with_suffix("")))


def _text_before(folder: Path) -> None:
    make_data(DataRequest(output=folder / "tokenizer", documents=20, vocab_size=300))
    (folder / "x.jsonl").write_text("".join(f'{{"text": "number {n} of some words"}}\n' for n in range(40)))
    (folder / "prepared").mkdir()


def _prepare_data(folder: Path) -> None:
    choice = TokenizerChoice(
        tokenizer_type="GPT2BPETokenizer",
        vocab_file=folder / "tokenizer/vocab.json",
        merge_file=folder / "tokenizer/merges.txt",
    )
    (folder / "prepared").mkdir(exist_ok=True)
    prepare(
        PrepareRequest(
            inputs=(str(folder / "x.jsonl"),), output=str(folder / "prepared/text"), tokenizer=choice, workers=1
        )
    )


def _tracker(folder: Path) -> None:
    from nlp_bench.train.checkpoint.folder import SCHEMA, publish, write_record

    path = folder / "iter_0000010"
    path.mkdir(exist_ok=True)
    write_record(path, {"schema": SCHEMA, "iteration": 10, "consumed_samples": 1, "must_match": {}, "layout": {}})
    publish(folder, 10, None)


def _documents(number: int) -> Work:
    return lambda folder: make_data(DataRequest(output=folder / "data", documents=number, vocab_size=300))


WRITERS = (
    Writer(name="writing", prepare=lambda folder: (folder / "old.txt").write_text("old\n"), write=_stream),
    Writer(name="replace_folder", prepare=_swap_before, write=_swap, recover="data"),
    Writer(name="data", prepare=prepared_once(_documents(20)), write=_documents(30), check=_data_is_whole, recover="data"),
    Writer(name="data prepare", prepare=prepared_once(_text_before), write=_prepare_data),
    Writer(name="checkpoint's record and tracker", prepare=lambda folder: (folder / "latest_checkpointed_iteration.txt").write_text("5\n"), write=_tracker),
    Writer(name="build", write=lambda folder: maker.make_build(folder, this_machine("cpu"), Extras(), lambda _: None), seal=maker.MANIFEST),
)  # fmt: skip
