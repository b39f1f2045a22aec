"""Checkpoints: a training that goes on in any layout is the same training, and what does not fit is refused by name."""

import contextlib
import json
import os
import pickle
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.forked import LEAST, MOCK, Train
from support.processes import gone

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.train.arguments import parse
from nlp_bench.train.checkpoint.folder import (
    LAST_FILE,
    RECORD,
    TRACKER,
    check_start,
    checkpoint_path,
    clear,
    describe,
    newest,
    publish,
    read_record,
    whole,
    write_record,
)
from nlp_bench.train.checkpoint.integrity import COMMON, INDEX, check_index, damaged, refuse_damaged
from nlp_bench.train.layout import Layout

BASE = f"{MOCK} --train-iters 10 --use-distributed-optimizer --hidden-size 48"
"""A width of 48 leaves gaps between the buckets of gradients, which megatron-core 0.16.1 by itself does not see."""
TINY = f"{LEAST} --global-batch-size 4 --train-iters 8 {MOCK}"


def made_by_hand(folder: Path, iteration: int, words: str = "", world_size: int = 1) -> None:
    """Leave a checkpoint without weights: its record, its last file, and the tracker."""
    settings = parse(f"{TINY} {words}".split())
    layout = Layout.of(settings, world_size)
    path = clear(folder, iteration)
    write_record(path, describe(settings, layout, iteration, iteration * layout.global_batch_size))
    (path / LAST_FILE).write_text("{}")
    publish(folder, iteration, None)


def start(words: str, world_size: int = 1) -> str | None:
    settings = parse(shlex.split(f"{TINY} {words}"))
    return check_start(settings, Layout.of(settings, world_size))


def test_only_what_the_tracker_names_is_taken(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    clear(tmp_path, 10)  # a first save that was killed
    assert newest(tmp_path) is None
    made_by_hand(tmp_path, 10)
    clear(tmp_path, 20)
    assert newest(tmp_path) == checkpoint_path(tmp_path, 10)
    (tmp_path / TRACKER).write_text("20\n")
    with pytest.raises(
        UsageError,
        match=r"load: .* names iteration 20, but .*iter_0000020 is not a whole checkpoint .*of a whole one into it: 10",
    ):
        newest(tmp_path)
    (checkpoint_path(tmp_path, 10) / RECORD).unlink()  # as Megatron-LM's own are: no iteration in the tracker helps
    with pytest.raises(UsageError, match=r"those of Megatron-LM and other programs are not read; name another folder$"):
        newest(tmp_path)


def test_a_tracker_that_was_purged_takes_no_checkpoint_with_it(tmp_path: Path) -> None:
    made_by_hand(tmp_path, 9)
    made_by_hand(tmp_path, 10)
    clear(tmp_path, 20)
    (tmp_path / TRACKER).unlink()
    assert newest(tmp_path) == checkpoint_path(tmp_path, 10)
    with pytest.raises(UsageError, match=r"save: .* holds iter_0000010 of another training"):
        start(f"--save {tmp_path}")


def test_the_option_that_continues_a_training_can_be_copied(tmp_path: Path) -> None:
    folder = tmp_path / "my ck"
    made_by_hand(folder, 10)
    with pytest.raises(UsageError, match=f"or continue it with --load '{folder}'$"):
        start(f"--save '{folder}'")


def test_the_newest_ones_are_kept(tmp_path: Path) -> None:
    for iteration in (2, 4, 6):
        made_by_hand(tmp_path, iteration)
    publish(tmp_path, 6, 2)
    assert [path.name for path in whole(tmp_path)] == ["iter_0000004", "iter_0000006"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--num-layers 8", "num_layers is 4 in the checkpoint FOLDER/iter_0000004, and 8 here; give --num-layers 4"),
        ("--ffn-hidden-size 128", "ffn_width is 256 in the checkpoint FOLDER/iter_0000004, and 128 here; give --ffn-hidden-size 256"),
        ("--vocab-size 500", "vocab_size is 512"),
        ("--swiglu", "swiglu is False in the checkpoint FOLDER/iter_0000004, and True here; leave out --swiglu"),
        ("--bf16", "params_dtype is float32"),
        ("--model-family bert", "model_family is gpt in the checkpoint"),
        ("--global-batch-size 8", "global_batch_size is 4 in the checkpoint"),
        ("--train-iters 16", "decay_samples is 32 in the checkpoint FOLDER/iter_0000004, and 64 here; give --lr-decay-samples 32"),
        ("--seed 5", "seed is 1234"),
        ("--use-distributed-optimizer", "use_distributed_optimizer is False"),
    ],
)  # fmt: skip
def test_another_training_is_refused_by_name(tmp_path: Path, words: str, message: str) -> None:
    made_by_hand(tmp_path, 4)
    with pytest.raises(UsageError) as error:
        start(f"--load {tmp_path} {words}")
    assert message.replace("FOLDER", str(tmp_path)) in str(error.value)


@pytest.mark.parametrize(
    ("words", "world_size"),
    [("", 4), ("--tensor-model-parallel-size 2", 2), ("--pipeline-model-parallel-size 2", 4), ("--lr-decay-iters 8 --train-iters 12", 1)],
)  # fmt: skip
def test_another_layout_and_more_iterations_are_fine(tmp_path: Path, words: str, world_size: int) -> None:
    made_by_hand(tmp_path, 4)
    assert start(f"--load {tmp_path} {words}", world_size) is None


def test_nothing_left_to_train_is_said(tmp_path: Path) -> None:
    made_by_hand(tmp_path, 8)
    assert "iter_0000008 holds iteration 8 of 8" in start(f"--load {tmp_path}")


def test_a_folder_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    assert start(f"--load {tmp_path / 'nowhere'}") is None


def test_a_folder_too_deep_for_sockets_is_refused_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writers of the first checkpoint, maybe hours later, would fail."""
    monkeypatch.setattr(tempfile, "tempdir", "/" + 75 * "a")
    with pytest.raises(UsageError, match=r"save: a socket .* TMPDIR, /a+: .*; export TMPDIR=/tmp"):
        start(f"--save {tmp_path}")
    monkeypatch.setattr(tempfile, "tempdir", "/" + 74 * "a")
    assert start(f"--save {tmp_path}") is None


def with_record(**fields: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = checkpoint_path(folder, 4) / RECORD
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def with_tracker(word: str) -> Callable[[Path], object]:
    return lambda folder: (folder / TRACKER).write_text(word, encoding="utf-8")


NUMBER = r"not an iteration; write the iteration of a whole one into it: 4"


@pytest.mark.parametrize(
    ("damage", "words", "message"),
    [
        (with_record(schema="nlp-bench/checkpoint/2"), "--load FOLDER", "is newer than this nlp-bench reads"),
        (with_record(iteration=3), "--load FOLDER", "iteration is 3, but the folder is iter_0000004"),
        (with_record(iteration=True), "--load FOLDER", "iteration is True, but the folder is iter_0000004"),
        (with_record(consumed_samples=8), "--load FOLDER", "is 8, but 4 iterations of global_batch_size 4 have 16"),
        (with_record(consumed_samples=-16), "--load FOLDER", "consumed_samples is -16, but"),
        *((with_tracker(word), "--load FOLDER", NUMBER) for word in ("release", "../4", "9" * 5000, "-4", "\u0664")),
        (None, "--load FOLDER/iter_0000004", r"iter_0000004 is itself a checkpoint; give --load FOLDER, whose"),
        (None, f"--load FOLDER/{TRACKER}", r"load: .* is no folder"),
        (None, "--load FOLDER/nowhere --exit-on-missing-checkpoint", r"load: .*nowhere holds no whole checkpoint"),
        (None, "--save FOLDER", r"save: .* holds iter_0000004 of another training; name a new folder"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_contradicts_itself_or_is_no_folder_of_checkpoints_is_refused(
    tmp_path: Path, damage: Callable[[Path], object] | None, words: str, message: str
) -> None:
    made_by_hand(tmp_path, 4)
    assert start(f"--save {tmp_path} --load {tmp_path}") is None
    if damage:
        damage(tmp_path)
    with pytest.raises(NlpBenchError, match=message.replace("FOLDER", str(tmp_path))):
        start(words.replace("FOLDER", str(tmp_path)))


@pytest.mark.parametrize("words", [["--save", "FOLDER"], ["--load", "FOLDER/iter_0000004"]])
def test_the_option_that_is_named_can_be_typed_for_a_folder_with_a_blank(tmp_path: Path, words: list[str]) -> None:
    folder = str(tmp_path / "my run")
    made_by_hand(Path(folder), 4)
    settings = parse([*TINY.split(), *(word.replace("FOLDER", folder) for word in words)])
    with pytest.raises(UsageError, match=f"--load '{folder}'"):
        check_start(settings, Layout.of(settings, 1))


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("boom",)


def test_an_index_that_would_run_code_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / INDEX).write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(NlpBenchError, match=r"it asks for builtins\.print, which no checkpoint needs"):
        check_index(tmp_path)
    assert "boom" not in capfd.readouterr().out


class _Old:
    """What Python before 3.11.4 pickles for an attribute: members of enums come as calls of getattr."""

    def __init__(self, kind: type, name: str) -> None:
        self.found = getattr, (kind, name)

    def __reduce__(self) -> Any:
        return self.found


def test_an_index_of_an_older_python_is_read_but_gives_no_attribute_out(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import WriteItemType

    (tmp_path / COMMON).touch()
    (tmp_path / INDEX).write_bytes(pickle.dumps(_Old(WriteItemType, "TENSOR")))
    check_index(tmp_path)
    (tmp_path / INDEX).write_bytes(pickle.dumps(_Old(Metadata, "__init__")))
    with pytest.raises(NlpBenchError, match=r"it asks for '__init__' of .*, which no checkpoint needs"):
        check_index(tmp_path)


@pytest.fixture(scope="module")
def alone(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An uninterrupted training of ten iterations that left checkpoints of 2, 4, ... 10, and its folder."""
    folder = tmp_path_factory.mktemp("check points")  # a path with a space
    return train(1, f"{BASE} --save-interval 2 --async-save --save", str(folder)), folder


def copy_of(folder: Path, iteration: int, target: Path) -> Path:
    """Return a folder that holds one checkpoint of `folder`, as if the training had been killed behind it."""
    target.mkdir()
    checkpoint_path(target, iteration).symlink_to(checkpoint_path(folder, iteration))
    (target / TRACKER).write_text(f"{iteration}\n")
    return target


@pytest.mark.torchrun
def test_one_rank_goes_on_exactly(train: Train, alone: Any, tmp_path: Path) -> None:
    whole_run, folder = alone
    curve = whole_run.losses
    assert len(curve) == 10
    assert [path.name for path in whole(folder)] == [f"iter_{n:07d}" for n in (2, 4, 6, 8, 10)]
    common = torch.load(whole(folder)[0] / "common.pt", weights_only=False)  # what Megatron-LM looks for there
    assert common["content_metadata"]["distrib_optim_sharding_type"] == "fully_reshardable"
    rest = train(1, f"{BASE} --load", str(copy_of(folder, 6, tmp_path / "six")))
    assert rest.losses == pytest.approx(curve[6:], abs=1e-6)
    assert rest.numbers("learning rate") == whole_run.numbers("learning rate")[6:]
    assert "iteration        7/      10 | consumed samples:           28 |" in rest.stdout
    assert "iter_0000006" in rest.stdout


@pytest.mark.torchrun
def test_every_layout_goes_on_from_every_other(train: Train, alone: Any, tmp_path: Path) -> None:
    """One rank, then two tensor-parallel ones, an interleaved pipeline, two replicas with many buckets, and one rank again."""
    whole_run, folder = alone
    load = copy_of(folder, 2, tmp_path / "0")
    layouts = (
        (2, "--tensor-model-parallel-size 2 --sequence-parallel"),
        (2, "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"),
        (2, "--overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 5000"),
    )
    curve: list[float] = []
    for number, (num_ranks, layout) in enumerate(layouts, 1):
        save = tmp_path / str(number)
        words = f"{BASE} {layout} --exit-interval {2 + 2 * number} --load"
        part = train(num_ranks, words, str(load), "--save", str(save))
        curve += part.losses
        load = save
    curve += train(1, f"{BASE} --load", str(load)).losses
    assert curve == pytest.approx(whole_run.losses[2:], abs=1e-4)


def flip(file: Path, place: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(place)
        (byte,) = stream.read(1)
        stream.seek(place)
        stream.write(bytes([byte ^ 1]))


@pytest.mark.torchrun
def test_a_flipped_bit_is_named_with_the_command_that_takes_the_older_one(
    train: Train, alone: Any, tmp_path: Path
) -> None:
    """Anywhere: in weights, in torch's index, in the record itself. Torch reads most of them without a word."""
    whole_run, folder = alone
    for iteration in (4, 6):
        shutil.copytree(checkpoint_path(folder, iteration), checkpoint_path(tmp_path, iteration))
    (tmp_path / TRACKER).write_text("6\n")
    path = checkpoint_path(tmp_path, 6)
    record = read_record(path)
    files = [file for file in path.iterdir() if file.name != RECORD]
    names = {file.name for file in files}
    assert names == set(record["files"]) >= {".metadata", "common.pt", "__0_0.distcp", LAST_FILE}
    assert damaged(path, record, 0, 1) == []
    for file in files:
        size = file.stat().st_size
        for place in (0, size // 3, size // 2, size - 1):
            flip(file, place)
            assert [text.split(":")[0] for text in damaged(path, record, 0, 1)] == [file.name], (file, place)
            assert sorted(damaged(path, record, 0, 2) + damaged(path, record, 1, 2)) == damaged(path, record, 0, 1)
            flip(file, place)
    other = record | {"layout": record["layout"] | {"world_size": 3}}
    assert [text.split(":")[0] for text in damaged(path, other, 0, 1)] == [RECORD]
    without_sums = {name: record[name] for name in ("iteration", "layout")}  # of before there were any
    assert damaged(path, without_sums, 0, 1) == []
    shard = path / "__0_0.distcp"
    flip(shard, shard.stat().st_size // 2)
    ended = train(1, f"{BASE} --load", str(tmp_path))
    assert ended.code != 0
    assert f"{path} is damaged: __0_0.distcp: it is not what was saved" in ended.stderr
    command = f"echo 4 > {tmp_path / TRACKER}"
    assert f"take the next older one and repeat: {command}" in ended.stderr
    subprocess.run(["bash", "-c", command], check=True)
    assert train(1, f"{BASE} --load", str(tmp_path)).losses == pytest.approx(whole_run.losses[4:], abs=1e-6)
    shutil.rmtree(checkpoint_path(tmp_path, 4))
    with pytest.raises(NlpBenchError, match=r"no older one is there: bring the file back"):
        refuse_damaged(path, ["x"])


@pytest.mark.torchrun
def test_a_checkpoint_holds_the_last_update_of_every_replica(train: Train, tmp_path: Path) -> None:
    """With --overlap-param-gather it reaches the other replicas in the next forward pass only, and 16-bit weights are no shards."""
    words = f"{BASE} --bf16 --overlap-grad-reduce --overlap-param-gather"
    whole_run = train(2, f"{words} --save-interval 5 --save", str(tmp_path / "all"))
    five = checkpoint_path(tmp_path / "all", 5)
    assert {path.name for path in five.iterdir()} - {RECORD} == set(read_record(five)["files"])  # those of both ranks
    rest = train(2, f"{words} --load", str(copy_of(tmp_path / "all", 5, tmp_path / "five")))
    assert rest.losses == pytest.approx(whole_run.losses[5:], abs=1e-6)


ENDLESS = "--train-iters 1000000 --lr-decay-iters 8 --log-interval 1"


def in_background(words: str, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "nlp_bench.train", *TINY.split(), *words.split(), *more]
    environment = {name: word for name, word in os.environ.items() if name not in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment | {"OMP_NUM_THREADS": "1"})


@pytest.mark.torchrun
def test_sigterm_ends_the_training_with_a_checkpoint(tmp_path: Path) -> None:
    with in_background(f"{ENDLESS} --exit-signal-handler --save", str(tmp_path)) as process:
        said = ""
        while "iteration " not in said.rpartition("checkpoints:")[2]:
            line = process.stdout.readline()
            assert line, said  # it has ended
            said += line
        process.send_signal(signal.SIGTERM)
        said += process.stdout.read()
    assert process.returncode == 0
    path = newest(tmp_path)
    iteration = json.loads((path / RECORD).read_text())["iteration"]
    assert f" training stopped by exit-signal-handler: SIGTERM came after iteration {iteration}\n" in said
    assert f"are left: repeat the command with --load {tmp_path}" in said


@pytest.mark.torchrun
def test_killed_in_the_middle_of_a_save_the_older_one_is_taken(train: Train, tmp_path: Path) -> None:
    with in_background(f"{ENDLESS} --save-interval 1 --save", str(tmp_path)) as process:
        half = None
        while half is None:
            time.sleep(0.002)
            assert process.poll() is None
            if half_written(tmp_path) is not None and (tmp_path / TRACKER).exists():
                process.send_signal(signal.SIGSTOP)  # so that what is seen stays so
                half = half_written(tmp_path)
                process.send_signal(signal.SIGSTOP if half else signal.SIGCONT)
        process.kill()
        process.stdout.read()
    assert gone(str(tmp_path)), "a writer has outlived its rank"
    older = newest(tmp_path)
    assert older.name < half.name
    settings = "--mock-data --vocab-size 512 --train-iters 1000000 --lr-decay-iters 8 --position-embedding-type learned_absolute"
    dropout = "--attention-dropout 0.1 --hidden-dropout 0.1 --exit-interval 1 --load"
    ended = train(1, f"{settings} {dropout}", str(tmp_path))
    assert ended.code == 0, ended.stderr
    assert f"loaded {older}" in ended.stdout


def half_written(folder: Path) -> Path | None:
    with contextlib.suppress(FileNotFoundError):
        paths = [path for path in folder.glob("iter_*") if any(path.iterdir()) and not (path / LAST_FILE).exists()]
        return paths[0] if paths else None
    return None
