# ruff: noqa: INP001  # scripts, not a package
"""How much faster than a plain loop is `nlp-bench data prepare`? Prints a table of ratios.

    python benchmark/perf/data_prepare.py                            (half a minute on 2 cores)
    python benchmark/perf/data_prepare.py --documents 1000 --repeat 1   (a smoke test)

The plain loop is one process that reads a line, calls `Tokenizer.encode` and gives the tokens to megatron-core's
IndexedDatasetBuilder, as each worker of Megatron-LM's tools/preprocess_data.py does; its imports are not counted. Ours is counted
from the call to the record, the start of its processes, flushing, joining and SHA-256 of the result included.
Both must write the same bytes. The text is the invented corpus of `nlp-bench data`.
"""

import argparse
import json
import lzma
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--documents", type=int, default=20_000, help="documents of about 600 characters (default 20000)"
    )
    parser.add_argument("--repeat", type=int, default=2, help="the best of so many (default 2)")
    parser.add_argument("--folder", help="where to write (default: the system's folder for temporary files)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _compare(Path(folder), options.documents, options.repeat)
    return 0


def _compare(folder: Path, documents: int, repeat: int) -> None:
    from nlp_bench.data import maker  # noqa: PLC0415  # --help is light
    from nlp_bench.data.tokenizer import train_byte_pairs  # noqa: PLC0415

    text = [{"text": document} for document in maker.documents(1, documents)]
    content = "".join(json.dumps(record) + "\n" for record in text).encode()
    (folder / "text.jsonl").write_bytes(content)
    (folder / "text.jsonl.xz").write_bytes(lzma.compress(content, preset=1))
    train_byte_pairs((record["text"] for record in text), 8000).model.save(str(folder))
    cores = len(os.sched_getaffinity(0))
    _builder()  # its import takes seconds
    runs: dict[str, Callable[[], bytes]] = {"plain loop, one process": lambda: _plain(folder)}
    for workers in sorted({1, cores}):
        runs[f"prepare --workers {workers}"] = lambda workers=workers: _ours(folder, "text.jsonl", workers)  # type: ignore[misc]
    runs[f"prepare --workers {cores}, one .xz file"] = lambda: _ours(folder, "text.jsonl.xz", cores)
    rows = _best(runs, repeat)
    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {cores} cores, Python {platform.python_version()}\n")
    print("| way | s | MB/s of text | million tokens/s | speed / plain loop | CPU s | CPU s / plain loop |")
    print("|:--|--:|--:|--:|--:|--:|--:|")
    plain = rows["plain loop, one process"]
    for name, (elapsed_s, cpu_s, num_bytes) in rows.items():
        rates = f"{len(content) / 1e6 / elapsed_s:.2f} | {num_bytes / 2e6 / elapsed_s:.2f} | {plain[0] / elapsed_s:.2f}"
        print(f"| {name} | {elapsed_s:.2f} | {rates} | {cpu_s:.2f} | {cpu_s / plain[1]:.2f} |")


def _best(runs: dict[str, Callable[[], bytes]], repeat: int) -> dict[str, tuple[float, float, int]]:
    """Return for each way its best seconds, its least CPU seconds (with child processes) and the bytes of its result."""
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in runs}
    results = set()
    for _ in range(repeat):  # in turns, so that what else the machine does meets all of them
        for name, run in runs.items():
            begin, begin_cpu = time.perf_counter(), sum(os.times()[:4])
            result = run()
            found[name].append((time.perf_counter() - begin, sum(os.times()[:4]) - begin_cpu, len(result)))
            results.add(result)
    if len(results) != 1:
        raise SystemExit("the results differ")
    return {name: (min(s for s, _, _ in all_), min(c for _, c, _ in all_), all_[0][2]) for name, all_ in found.items()}


def _builder() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # megatron-core warns of every package that it does not find
        from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder  # noqa: PLC0415
    return IndexedDatasetBuilder


def _plain(folder: Path) -> bytes:
    import numpy as np  # noqa: PLC0415

    from nlp_bench.data.tokenizer import END_OF_DOCUMENT, byte_pairs  # noqa: PLC0415

    tokenizer = byte_pairs(folder / "vocab.json", folder / "merges.txt")
    end = tokenizer.token_to_id(END_OF_DOCUMENT)
    builder = _builder()(str(folder / "plain.bin"), dtype=np.uint16)
    with (folder / "text.jsonl").open(encoding="utf-8") as stream:
        for line in stream:
            tokens = [*tokenizer.encode(json.loads(line)["text"]).ids, end]
            builder.add_document(tokens, [len(tokens)])
    builder.finalize(str(folder / "plain.idx"))
    return (folder / "plain.bin").read_bytes()


def _ours(folder: Path, name: str, workers: int) -> bytes:
    from nlp_bench.data.prepare import PrepareRequest, prepare  # noqa: PLC0415  # --help is light
    from nlp_bench.data.shards import Reading  # noqa: PLC0415
    from nlp_bench.data.tokenizer import TokenizerChoice  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir=folder) as output:
        files = {"vocab_file": folder / "vocab.json", "merge_file": folder / "merges.txt"}
        tokenizer = TokenizerChoice(tokenizer_type="GPT2BPETokenizer", **files)
        request = PrepareRequest(
            inputs=(str(folder / name),),
            output=output,
            tokenizer=tokenizer,
            workers=workers,
            reading=Reading(append_eod=True),
        )
        prepare(request)
        return Path(request.prefix + ".bin").read_bytes()


if __name__ == "__main__":
    raise SystemExit(main())
