"""Preparing one's own text: token by token what the tokenizer says, the same for any workers, continued after a kill."""

import bz2
import contextlib
import gzip
import io
import itertools
import json
import lzma
import os
import re
import resource
import signal
import subprocess
import sys
import tarfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from support.command import Cli, Terminal
from support.processes import NLP_BENCH, execute, until

from nlp_bench.cli.main import main
from nlp_bench.data import shards
from nlp_bench.data.indexed import check_indexed
from nlp_bench.data.maker import DataRequest, documents, make_data
from nlp_bench.data.prepare import PrepareRequest, find_shards, prepare
from nlp_bench.data.shards import Reading, ShardProgress
from nlp_bench.data.text import Block, split_sentences
from nlp_bench.data.tokenizer import TokenizerChoice, byte_pairs
from nlp_bench.errors import NlpBenchError, UsageError

SHARDS: dict[str, Callable[[bytes], bytes]] = {
    "plain.jsonl": bytes,
    "c4-de.tfrecord-00000-of-01024.json.gz": gzip.compress,
    "oscar-1GB.jsonl.xz": lzma.compress,
    "00.jsonl.zst": zstd.compress,
    "x.jsonl.bz2": bz2.compress,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, and a shard of 100 documents in every packing, an empty document in each."""
    place = tmp_path_factory.mktemp("with space")
    make_data(DataRequest(output=place / "tokenizer", documents=300, vocab_size=600))
    for number, (name, pack) in enumerate(SHARDS.items()):
        (place / name).write_bytes(pack(json_lines(["", *documents(number, 100)])))
    return place


def json_lines(texts: Iterable[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def asked(folder: Path, output: Path, names: Iterable[str] = SHARDS, **changes: Any) -> PrepareRequest:
    files = {"vocab_file": folder / "tokenizer/vocab.json", "merge_file": folder / "tokenizer/merges.txt"}
    tokenizer = TokenizerChoice(tokenizer_type="GPT2BPETokenizer", **files)
    values = {"tokenizer": tokenizer, "reading": Reading(append_eod=True), "workers": 2, **changes}
    return PrepareRequest(inputs=tuple(str(folder / name) for name in names), output=str(output), **values)


def words(folder: Path, *more: str) -> list[str]:
    files = [f"--vocab-file={folder / 'tokenizer/vocab.json'}", f"--merge-file={folder / 'tokenizer/merges.txt'}"]
    return ["data", "prepare", *more, *files, "--workers", "1"]


def read(prefix: str) -> tuple[list[list[list[int]]], str]:
    """Read with megatron-core's own class: documents of sequences of tokens, and the type of a token."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.datasets.indexed_dataset import IndexedDataset
    data = IndexedDataset(prefix)
    ends = data.document_indices.tolist()
    documents = [[data[one].tolist() for one in range(*pair)] for pair in itertools.pairwise(ends)]
    return documents, data.index.dtype.__name__


def files(prefix: str) -> list[bytes]:
    return [Path(prefix + suffix).read_bytes() for suffix in (".bin", ".idx", ".json")]


def test_a_file_that_grows_while_it_is_read_is_refused(folder: Path, tmp_path: Path) -> None:
    """Of a file that was still being copied a part was taken for the whole, and the record contradicted itself."""
    growing, text = tmp_path / "growing.jsonl", json_lines(documents(0, 20))
    growing.write_bytes(text)
    is_read = threading.Event()

    def copy() -> None:
        while not is_read.wait(0.005):
            with growing.open("ab") as stream:
                stream.write(text)

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        with pytest.raises(UsageError, match=r"growing.jsonl changed while it was read \(\d+ bytes, now \d+\)"):
            prepare(asked(folder, tmp_path / "out", [str(growing)]))
    finally:
        is_read.set()
        copying.join()
    assert not [*tmp_path.glob("out*.json")]
    assert prepare(asked(folder, tmp_path / "out", [str(growing)]))[0]["num_documents"] >= 20


@pytest.mark.slow
def test_every_token_is_the_tokenizers_own_in_the_order_of_the_input(folder: Path, tmp_path: Path) -> None:
    request = asked(folder, tmp_path / "new" / "data")
    record, made = prepare(request)
    tokenizer = byte_pairs(folder / "tokenizer/vocab.json", folder / "tokenizer/merges.txt")
    texts = [text for number in range(len(SHARDS)) for text in documents(number, 100)]
    end = tokenizer.token_to_id("<|endoftext|>")
    expected = [[[*tokenizer.encode(text).ids, end]] for text in texts]
    assert made
    assert read(request.prefix) == (expected, "uint16")
    check_indexed(request.prefix)
    counts = [record[f"num_{name}"] for name in ("documents", "sequences", "tokens", "empty", "broken")]
    assert counts == [500, 500, sum(len(one[0]) for one in expected), 5, 0]
    assert [shard["num_documents"] for shard in record["shards"]] == [100] * 5
    assert record["schema"] == "nlp-bench/data/2"
    assert not request.shards.exists()


def test_the_files_are_those_of_megatron_cores_builder(folder: Path, tmp_path: Path) -> None:
    reading = Reading(split_sentences=True)
    request = asked(folder, tmp_path / "data", ["plain.jsonl"], reading=reading)
    prepare(request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
    tokenizer = byte_pairs(folder / "tokenizer/vocab.json", folder / "tokenizer/merges.txt")
    builder = IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=DType.optimal_dtype(600))
    for text in documents(0, 100):
        sentences = [tokenizer.encode(sentence).ids for sentence in split_sentences(text)]
        builder.add_document(list(itertools.chain(*sentences)), [len(ids) for ids in sentences])
    builder.finalize(str(tmp_path / "theirs.idx"))
    assert request.prefix.endswith("data_text_sentence")
    assert files(request.prefix)[0] == (tmp_path / "theirs.bin").read_bytes()
    assert files(request.prefix)[1] == (tmp_path / "theirs.idx").read_bytes()


def test_a_large_vocabulary_has_tokens_of_four_bytes(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(70000)}, unk_token="w0"))  # noqa: S106  # no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.jsonl").write_bytes(json_lines(["w69999 w1", "w5"]))
    choice = TokenizerChoice(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=tmp_path)
    request = asked(tmp_path, tmp_path / "out", ["a.jsonl"], tokenizer=choice, reading=Reading())
    assert prepare(request)[0]["token_type"] == "int32"  # noqa: S105
    assert read(request.prefix) == ([[[69999, 1]], [[5]]], "int32")


@pytest.mark.slow
def test_neither_workers_nor_pieces_change_the_result(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asked(folder, tmp_path / "1" / "data", workers=1)
    many = asked(folder, tmp_path / "2" / "data", workers=3)
    expected, _ = prepare(one)
    monkeypatch.setattr(shards, "PIECE_BYTES", 1)
    assert prepare(many)[0] == expected
    assert files(one.prefix) == files(many.prefix)


def workers_of(group: int) -> list[str]:
    """The worker processes of a process group that still run."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, its_group = (place / "stat").read_text().rpartition(")")[2].split()[:3]
            command = (place / "cmdline").read_text()
            found += [command] if int(its_group) == group and state != "Z" and "spawn_main" in command else []
    return found


KILLED = """
import sys
from pathlib import Path
from nlp_bench.data import shards, text
from test_prepare import asked, prepare
if __name__ == "__main__":
    text.BLOCK_BYTES = shards.PIECE_BYTES = 4000
    prepare(asked(Path(sys.argv[1]), Path(sys.argv[2]), workers=1))
"""


@pytest.mark.slow
def test_a_killed_preparation_continues_to_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    request = asked(folder, tmp_path / "data", keep_shards=True)
    places = [*map(str, Path(__file__).parents[:2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, script, folder, tmp_path / "data"]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    while not list(request.shards.glob("*.00002.json")):
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    until(lambda: not workers_of(process.pid))  # nobody encodes for a parent that is gone
    assert not Path(request.prefix + ".bin").exists()
    done = {path: path.stat().st_mtime_ns for path in request.shards.glob("*.json")}
    assert prepare(request)[1]
    assert {path: path.stat().st_mtime_ns for path in done} == done
    whole = asked(folder, tmp_path / "whole" / "data")
    prepare(whole)
    assert files(request.prefix) == files(whole.prefix)


@pytest.mark.slow
def test_ctrl_c_ends_it_and_its_workers(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "large.jsonl").write_bytes((folder / "plain.jsonl").read_bytes() * 200)
    command = [*NLP_BENCH, *words(folder, str(tmp_path / "large.jsonl"), f"--output={tmp_path}/o")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(tmp_path.glob("o.shards/*.part")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = [line for line in process.communicate(timeout=120)[1].splitlines() if "preparing" not in line]  # after 30 s
    assert said == ["nlp-bench: interrupted; repeat the same command to go on"]
    assert process.returncode == 130
    assert workers_of(process.pid) == []
    assert not list(tmp_path.glob("o.shards/*.part"))


@pytest.mark.parametrize(
    ("most_s", "said"),
    [
        (resource.RLIM_INFINITY, "a worker process died (killed, or out of memory); try fewer --workers: "),
        (
            600,
            "or at the 600 s of CPU time that `ulimit -t` allows each process); try fewer --workers, or prepare the data in a job: ",
        ),
    ],
)
def test_a_worker_that_died_names_the_limit_of_a_login_node(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_s: int, said: str
) -> None:
    monkeypatch.setattr(shards, "begin", os._exit)  # with words that it does not take
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most_s, most_s))
    with pytest.raises(NlpBenchError, match=re.escape(said)):
        prepare(asked(folder, tmp_path / "out", ["plain.jsonl"], workers=1))


def test_a_worker_that_died_with_text_on_its_way_ends_it(folder: Path, tmp_path: Path) -> None:
    """Python 3.11 waits for ever for the thread that sends it: seen once in a test of small files."""
    (tmp_path / "large.jsonl").write_bytes((folder / "plain.jsonl").read_bytes() * 50)
    line = words(folder, str(tmp_path / "large.jsonl"), f"--output={tmp_path}/o")
    script = "import os, sys; from nlp_bench.data import shards; from nlp_bench.cli.main import main; shards.begin = os._exit; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", script, *line], check=False, capture_output=True, text=True, timeout=60
    )
    assert "a worker process died" in done.stderr


def test_what_is_there_is_kept_and_other_parameters_are_refused(folder: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "Bade kari."}\n')
    line = words(folder, str(tmp_path / "a.jsonl"), f"--output={tmp_path}/o")
    out = cli(*line).out.splitlines()
    assert out[0].startswith(f"{tmp_path}/o_text_document: 1 documents, ")
    assert out[0].endswith("vocabulary 600 (made)")
    assert f"--data-path '{tmp_path}/o_text_document'" in out[1] or f"--data-path {tmp_path}/o_text_document" in out[1]
    before = files(f"{tmp_path}/o_text_document")
    assert "(already there)" in cli(*line).out
    assert "was made with other parameters (append_eod False, now True)" in cli(*line, "--append-eod", code=2).err
    assert files(f"{tmp_path}/o_text_document") == before
    assert main([*line, "--append-eod", "--overwrite"]) == 0
    assert files(f"{tmp_path}/o_text_document") != before
    Path(f"{tmp_path}/o_text_document.bin").write_bytes(b"")
    assert main([*line, "--append-eod"]) == 0  # damaged data are made anew
    check_indexed(f"{tmp_path}/o_text_document")


@pytest.mark.parametrize("pattern", ["", "**/*.json*"])
def test_the_output_may_lie_among_the_text(folder: Path, tmp_path: Path, cli: Cli, pattern: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "Bade kari."}\n')
    line = words(folder, f"{tmp_path}/{pattern}", f"--output={tmp_path}/out/o", "--keep-shards")
    assert "o_text_document: 1 documents, " in cli(*line).out
    assert "(already there)" in cli(*line).out
    (tmp_path / "b.json").write_text('{"text": "Mo."}\n')
    assert "o_text_document: 2 documents, " in cli(*line, "--overwrite").out


def test_somebody_elses_data_are_not_written_over(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data_text_document.bin").write_text("years of work")
    with pytest.raises(UsageError, match=r"output: .*data_text_document.bin exists and has no record of ours"):
        prepare(asked(folder, tmp_path / "data"))


def test_a_failure_while_joining_is_mended_by_the_next_call(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked(folder, tmp_path / "data", ["plain.jsonl"])
    with monkeypatch.context() as patched:
        patched.setattr("nlp_bench.data.prepare.write_json", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepare(request)
    assert Path(request.prefix + ".bin").exists()
    assert prepare(request)[1]
    check_indexed(request.prefix)


def test_broken_lines_are_named_or_counted(folder: Path, tmp_path: Path, cli: Cli) -> None:
    """What is said of each fault: test_text.py."""
    path = tmp_path / "a.jsonl"
    broken = {b'{"text": \n': "not JSON", b'{"body": "b", "id": 1}\n': "its keys are body, id"}
    for content, message in broken.items():
        path.write_bytes(b'{"text": "a"}\n\n' + content)
        error = cli(*words(folder, str(path), f"--output={tmp_path}/o"), code=2).err
        assert f"input: {path}, line 3: " in error
        assert message in error
        assert "--skip-broken leaves such lines out" in error
    path.write_bytes(b'{"text": "a"}\n\n' + b"".join(broken) + b'{"text": ""}\n')
    found = cli(*words(folder, str(path), f"--output={tmp_path}/o", "--skip-broken"))
    assert "1 documents, 1 tokens" in found.out
    assert "left out: 1 documents without tokens, 2 broken lines" in found.err
    assert f"input: {path}, line 4: no 'text'" in found.err


@pytest.mark.parametrize("name", list(SHARDS)[1:])
def test_a_cut_shard_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    request = asked(folder, tmp_path / "o", [str(tmp_path / name)], workers=1)
    with pytest.raises(UsageError, match=rf"input: .*{name} cannot be read to its end: .*; copy or download it again"):
        prepare(request)
    assert not Path(request.prefix + ".bin").exists()


def test_a_tar_archive_is_no_text(folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "a.jsonl.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(folder / "plain.jsonl")
    with pytest.raises(UsageError, match=r"a.jsonl.tar.gz is a tar archive; unpack it"):
        prepare(asked(folder, tmp_path / "o", [str(packed)], workers=1))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--output=o"], "input: not given; name files"),
        (["-", "--output=o"], "input: -: standard input cannot be continued"),
        (["a*", "--output=o"], "input: no file matches 'a*'"),
        (["a.jsonl"], "output: not given; add --output PREFIX"),
        (["a.jsonl", "--output=o.bin"], "output: o.bin ends in .bin, which is added; give o"),
        (["a.jsonl", "--output=o", "--seed=1"], "--seed does not go with nlp-bench data prepare"),
        (["a.jsonl", "--output=o", "--workers=5000"], "workers: 5000 is not between 1 and 4096"),
    ],
)
def test_a_slip_on_the_command_line_is_named(folder: Path, cli: Cli, more: list[str], message: str) -> None:
    assert message in cli("data", "prepare", *more, *words(folder)[2:-2], code=2).err


def test_the_time_left_counts_only_what_is_done_now() -> None:
    progress = ShardProgress([1_000_000, 1_000_000])
    for position in (500_000, 700_000):
        progress.begin(0, position)  # an earlier run had come to the first
    progress.add(0, Block(data=b"", end=0, number=1, position=1_000_000), text_bytes=4_000_000, documents=100)
    expected = "nlp-bench: preparing 50.0 %, 0/2 shards, 10 documents/s, 0.4 MB/s of text, 20 s left"
    assert progress.text(10.0) == expected
    progress.end(0)
    progress.end(1)  # done in an earlier run
    assert progress.text(10.0) == "nlp-bench: preparing 100.0 %, 2/2 shards, 10 documents/s, 0.4 MB/s of text"


def test_a_terminal_has_one_line_and_a_file_has_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, expected in ((Terminal(), "\r"), (io.StringIO(), "nlp-bench: preparing ")):
        monkeypatch.setattr(sys, "stderr", stream)
        progress = ShardProgress([1])
        progress.show()
        assert stream.getvalue() == ""  # short work needs no progress
        progress.next_s = 0
        progress.show()
        assert stream.getvalue().startswith(expected)
        progress.line.wipe()
        assert stream.getvalue().endswith("\r" if stream.isatty() else " text\n")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    made = ("b.jsonl", "a.json.gz", "deep/c.jsonl.zst", "notes.txt", ".hidden/d.jsonl", "deep/.e.jsonl", "[1].jsonl")
    for name in made:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def names(inputs: Path, *words: str) -> list[str]:
    return [path.relative_to(inputs).as_posix() for path in find_shards(tuple(str(inputs / word) for word in words))]


def test_words_keep_their_order_and_folders_and_patterns_are_sorted(inputs: Path) -> None:
    assert names(inputs, "") == ["[1].jsonl", "a.json.gz", "b.jsonl", "deep/c.jsonl.zst"]
    assert names(inputs, "deep", "[ab].j*") == ["deep/c.jsonl.zst", "a.json.gz", "b.jsonl"]
    assert names(inputs, "**/c*") == ["deep/c.jsonl.zst"]
    assert names(inputs, "notes.txt", "[1].jsonl") == ["notes.txt", "[1].jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["b.jsonl", "*"], r"b.jsonl is named twice \(as .*b.jsonl, by .*b.jsonl, and as .*b.jsonl, by .*\*\)"),
        (["q.jsonl"], r"input: cannot read .*q.jsonl: No such file"),
        (["empty"], r"empty holds no file named \*.jsonl or \*.json"),
        (["lfs.jsonl"], r"lfs.jsonl is a git-lfs pointer, not the file; fetch it with git lfs pull"),
    ],
)
def test_a_wrong_word_is_named(inputs: Path, words: list[str], message: str) -> None:
    (inputs / "empty").mkdir()
    (inputs / "lfs.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(UsageError, match=message):
        names(inputs, *words)


@pytest.mark.parametrize(
    "words",
    [
        "p --vocab-file f --merge-file f",
        "f --vocab-file p --merge-file f",
        "f --vocab-file f --merge-file p",
        "f --tokenizer-model p",
    ],
)
def test_a_pipe_as_data_does_not_hang(tmp_path: Path, words: str) -> None:
    os.mkfifo(tmp_path / "p")
    (tmp_path / "f").write_text('{"text": "a"}\n')
    command = [sys.executable, "-P", "-m", "nlp_bench", "data", "prepare", *words.split(), "--output", "out/"]
    done = execute(*command, cwd=tmp_path, timeout=60)
    assert done.returncode == UsageError.exit_code
    assert "p is a pipe, and it is read more than once; write it into a file" in done.stderr
