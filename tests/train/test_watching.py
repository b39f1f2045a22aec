"""The line of the log and what watches a training: each part by itself, and all of them in real trainings."""

import gzip
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from support.command import Terminal
from support.forked import LEAST, MOCK

from nlp_bench.errors import UsageError
from nlp_bench.logs.reader import read_log
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.train.arguments import parse
from nlp_bench.train.logline import Interval, format_line
from nlp_bench.train.watching.startup import now_s as boot_s
from nlp_bench.train.watching.startup import process_start_s
from nlp_bench.train.watching.timing import PHASES, TIMERS, PhaseSum, Timers, phases_of, table_lines
from nlp_bench.train.watching.watchers import Console, ProgressLine, memory_text
from nlp_bench.train.watching.writers import TensorBoard

INTERVAL = Interval(
    iteration=10, train_iters=3125000, consumed_samples=960, elapsed_s=7.2310, learning_rate=4.438e-7, global_batch_size=96,
    loss=10.10967, loss_scale=4096.0, grad_norm=178.553, num_skipped=0, num_nan=0, legacy_flops=101.54 * 7.2310 * 384 * 1e12,
    model_flops=75.0 * 7.2310 * 384 * 1e12, sequence_length=2048, num_gpus=384, peak_bytes=3 * 2**29, unix_time_s=1763639999.1234,
)  # fmt: skip
# Up to "TFLOPs: 101.54 |" this is, letter by letter, a line of the published log of the 175B benchmark.
GOLDEN = (
    " iteration       10/ 3125000 | consumed samples:          960 | elapsed time per iteration (s): 7.2310 |"
    " learning rate: 4.438E-07 | global batch size:    96 | lm loss: 1.010967E+01 | loss scale: 4096.0 |"
    " grad norm: 178.553 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    " samples per second: 13.276 | TFLOPs: 101.54 |"
    " model TFLOP/s/GPU: 75.00 | tokens per second: 27189.6 | peak memory GiB: 1.50 | unix time: 1763639999.123 |"
)
ROUGH = re.compile(rb"[\x00-\x08\x0e-\x1f]")


def settings(words: str = "") -> Any:
    return parse(f"{LEAST} --global-batch-size 4 --log-interval 1 {MOCK} {words}".split())


def test_the_line_has_the_known_shape() -> None:
    assert format_line(INTERVAL) == GOLDEN


def test_an_interval_without_an_update_has_no_loss() -> None:
    line = format_line(replace(INTERVAL, loss=None, grad_norm=None, num_skipped=10))
    assert "lm loss" not in line
    assert "grad norm" not in line
    assert "number of skipped iterations:  10 |" in line


def test_a_loss_that_is_not_a_number_is_printed_so() -> None:
    assert "| lm loss: NAN |" in format_line(replace(INTERVAL, loss=float("nan"), num_nan=1))


def test_the_start_of_this_process_is_known() -> None:
    assert 0 < boot_s() - process_start_s(os.getpid()) < 24 * 3600
    assert process_start_s(2**30) is None


def test_the_gpu_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[Any] = []

    class Event:
        """An event that the GPU has passed when the test says so, 5 ms after the one before."""

        made = 0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            Event.made += 1

        def record(self) -> None: ...

        def query(self) -> bool:
            return self in passed

        def elapsed_time(self, _end: "Event") -> float:
            return 5.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    timer = Timers(torch.device("cuda"))("forward-compute")
    for _ in range(3):
        timer.start()
        timer.stop()
    timer.settle()
    assert timer.seconds == 0
    passed.extend(end for _, end in list(timer._open)[:2])
    timer.settle()
    assert timer.seconds == pytest.approx(0.010)
    timer.start()
    timer.stop()
    assert Event.made == 6  # what has been read is used again


def row(**seconds: float) -> list[float]:
    return [seconds.get(name.replace("-", "_"), 0.0) for name in TIMERS]


def test_the_data_are_no_part_of_the_forward_pass() -> None:
    phases = phases_of(row(forward_compute=3.0, batch_generator=1.0, forward_recv=0.5, backward_recv=0.25))
    assert (phases["forward"], phases["data"], phases["pipeline waits"]) == (2.0, 1.0, 0.75)
    assert list(phases) == list(PHASES)


def test_the_table_has_the_form_of_megatron_lm() -> None:
    lines = table_lines([("forward-compute", [0.0, 0.0123456, 0.5]), ("never", [0.0, 0.0, 0.0])])
    assert lines[0] == " (min, max) time across ranks (ms):"
    assert lines[1:] == ["    forward-compute ................................: (12.35, 500.00)"]


def test_the_time_goes_to_shares_that_are_one() -> None:
    total = PhaseSum(2)
    slow = [9.0] * len(PHASES)
    total.add([slow] * 4, 100.0, 10)  # the first interval has the first iteration
    fast = list(phases_of(row(forward_compute=3.0, backward_compute=6.0)).values())
    late = list(phases_of(row(forward_compute=4.0, backward_compute=8.0)).values())
    total.add([fast, fast, fast, late], 20.0, 10)
    total.add([slow] * 4, 100.0, 10, spoilt=True)  # profiled
    assert total.lines() == [
        " > time went to: forward 16.2 %, backward 32.5 %, other 51.2 % (10 iterations, mean of 4 ranks)",
        " > slowest rank: 3, forward and backward 14 % above the median of pipeline stage 1",
    ]


def test_a_run_of_one_interval_still_says_where_its_time_went() -> None:
    total = PhaseSum(1)
    assert total.lines() == []
    total.add([list(phases_of(row(forward_compute=3.0)).values())], 4.0, 1)
    assert total.lines() == [" > time went to: forward 75.0 %, other 25.0 % (1 iterations, mean of 1 ranks)"]


def test_the_memory_of_few_ranks_is_listed_and_of_many_summed_up() -> None:
    gib = 2**30
    assert memory_text([[1.5 * gib]], 1) == "GiB: peak resident set 1.50"
    said = "GiB: peak allocated by rank 1.00 3.00; peak reserved by rank 2.00 4.00"
    assert memory_text([[1 * gib, 2 * gib], [3 * gib, 4 * gib]], 2) == said
    many = [[(40 - rank // 4) * gib] for rank in range(16)]
    many[9] = [50 * gib]
    assert memory_text(many, 4) == (
        "GiB: peak resident set 37.00 (rank 12) to 50.00 (rank 9), median 39.00; by pipeline stage 40.00 39.00 50.00 37.00"
    )


def test_progress_gives_way_to_the_log_and_tells_what_is_left() -> None:
    screen, log, times = Terminal(), io.StringIO(), iter([0.0, 1.0, 1.1, 3.0])
    console = Console(log, screen)
    layout = SimpleNamespace(global_batch_size=4, train_iters=600)
    progress = ProgressLine(console.line, settings(), layout, lambda: next(times))  # type: ignore[arg-type]
    for iteration in (1, 2, 3):
        progress.after(iteration)
    shown = screen.getvalue().split("\r")
    assert shown[1] == "iteration 1 of 600, 0 %"
    assert shown[2] == "iteration 2 of 600, 0 %, 128 tokens/s, 10 min left"
    assert len(shown) == 3  # the third came too soon
    console.say(" iteration        3/     600 |")
    assert screen.getvalue().endswith("\r" + " " * len(shown[2]) + "\r")
    progress.interval(replace(INTERVAL, iteration=4), {})
    assert screen.getvalue().endswith("iteration 4 of 600, 0 %, 128 tokens/s, 10 min left")
    assert log.getvalue() == " iteration        3/     600 |\n"


def points(folder: Path) -> dict[str, dict[int, float]]:
    """Read event files as TensorBoard does: tag to step to value."""
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    found: dict[str, dict[int, float]] = {}
    for path in folder.glob("*tfevents*"):
        content = path.read_bytes()
        while content:
            size = int.from_bytes(content[:8], "little")  # then a checksum of 4 bytes, the event, and another
            event = proto.Event.FromString(content[12 : 12 + size])
            content = content[16 + size :]
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def test_a_missing_package_is_said_once_and_ends_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    said: list[str] = []
    board = TensorBoard(settings(f"--tensorboard-dir {tmp_path}/tb"), said.append)
    board.interval(INTERVAL, {"lm loss": 1.0})
    board.close()
    assert said == [" > TensorBoard: nothing is written, the package is missing; pip install tensorboardX"]


def test_a_full_disk_is_said_once_and_ends_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboardX.event_file_writer")
    said: list[str] = []
    board = TensorBoard(settings(f"--tensorboard-dir {tmp_path}/tb --tensorboard-log-interval 10"), said.append)
    monkeypatch.setattr(writer.EventsWriter, "write_event", Mock(side_effect=OSError(28, "No space left on device")))
    board.interval(replace(INTERVAL, iteration=15), {"lm loss": 1.0})
    assert len(said) == 1  # nothing was due
    for _ in range(2):
        board.interval(INTERVAL, {"lm loss": 1.0})
    board.close()
    assert [text for text in said if "No space left on device; the training goes on" in text] == said[1:]
    assert len(said) == 2


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (tmp_path / "file").write_text("")
    said: list[str] = []
    TensorBoard(settings(f"--tensorboard-dir {tmp_path}/file/tb"), said.append).close()
    assert len(said) == 1
    assert "Not a directory; the training goes on" in said[0]


def test_weights_and_biases_must_be_there_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.train.settings.rules.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="wandb_project: the package wandb is not installed; pip install wandb"):
        settings("--wandb-project p")


@pytest.fixture(scope="module")
def watched(started: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Two pipeline stages with everything on: 8 log lines of 2 iterations each, the fifth iteration recorded."""
    folder = tmp_path_factory.mktemp("watched")
    words = (
        "--pipeline-model-parallel-size 2 --train-iters 16 --log-interval 2 --mllog --timing-log-level 2 --progress on "
        "--manual-gc --manual-gc-interval 3 --profile --profile-step-start 5 --profile-step-end 6 --profile-ranks 0 1"
    )
    more = ("--tensorboard-dir", f"{folder}/tb", "--profile-dir", f"{folder}/profile")
    ended = started(2, f"{MOCK} {words}", *more)
    assert ended.code == 0, ended.stderr
    (folder / "job.out").write_text(ended.stdout)
    return ended, folder


@pytest.mark.torchrun
def test_the_log_tells_start_up_memory_and_phases(watched: tuple[Any, Path]) -> None:
    text = watched[0].stdout
    start = re.findall(r" > start-up: (\S+) s from process start .*imports (\S+), .*torchrun was started (\S+) s", text)
    assert len(start) == 1
    assert float(start[0][0]) >= float(start[0][1]) > 0
    assert len(re.findall(r" > memory after iteration 1, GiB: peak resident set by rank \d\.\d\d \d\.\d\d", text)) == 1
    assert text.count(" > attention that ran: flash\n") == 1
    assert text.count("(min, max) time across ranks (ms):") == 8
    for name in ("forward-compute", "backward-compute", "pipeline-communication", "optimizer", "batch-generator"):
        assert len(re.findall(rf"\]:    {name} \.+: \(\d+\.\d\d, \d+\.\d\d\)", text)) == 8, name
    shares = re.findall(r" > time went to: (.*) \(12 iterations, mean of 2 ranks\)", text)
    assert len(shares) == 1
    assert sum(float(number) for number in re.findall(r"(\S+) %", shares[0])) == pytest.approx(100, abs=0.5)


@pytest.mark.torchrun
def test_what_is_printed_beside_the_log_lines_changes_no_number(watched: tuple[Any, Path], tmp_path: Path) -> None:
    ended, folder = watched
    bare = tmp_path / "bare.out"
    bare.write_text("".join(line for line in ended.stdout.splitlines(keepends=True) if "| lm loss:" in line))
    both = [measure_log(str(path), Overrides(sequence_length=32, num_gpus=2))[0] for path in (folder / "job.out", bare)]
    assert [entry.dialect for entry in both] == ["megatron-lm", "megatron-lm"]
    assert both[0].reference == pytest.approx(both[1].reference)
    for pattern in (r"iteration\s+\d+/\s*\d+", r"TFLOPs:\s+[\d.]+", r"elapsed time per iteration \(s\):\s+[\d.]+"):
        assert len(re.findall(pattern, ended.stdout + ended.stderr)) == 8, pattern


@pytest.mark.torchrun
def test_the_profiled_iteration_is_recorded_on_both_ranks_and_left_out(watched: tuple[Any, Path]) -> None:
    ended, folder = watched
    assert ended.stdout.count(" profiling iteration 5 on ranks 0 1\n") == 1
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((folder / f"profile/rank{rank}_iterations_5-5.json.gz").read_bytes()))
        assert any("addmm" in event.get("name", "") for event in trace["traceEvents"])
    assert [event.kind for event in read_log(str(folder / "job.out")).events] == ["profiler"]
    (entry,) = measure_log(str(folder / "job.out"), Overrides(num_gpus=2))
    why = {(one.first_iteration, one.last_iteration): one.why for one in entry.throughput.window.excluded}
    assert "profiler" in {reason for (first, last), reason in why.items() if first <= 5 <= last}


@pytest.mark.torchrun
def test_tensorboard_has_the_numbers_of_the_log(watched: tuple[Any, Path]) -> None:
    ended, folder = watched
    found = points(folder / "tb")
    assert list(found["lm loss"]) == list(range(2, 17, 2))
    assert list(found["lm loss"].values()) == pytest.approx(ended.numbers("lm loss"), rel=1e-5)
    times = ended.numbers(r"elapsed time per iteration \(s\)")
    assert list(found["iteration-time"].values()) == pytest.approx(times, abs=1e-4)
    assert list(found["lm loss vs samples"]) == list(range(8, 65, 8))
    for tag in ("learning-rate", "grad-norm", "loss-scale", "batch-size", "throughput", "forward-compute-time"):
        assert len(found[tag]) == 8, tag


@pytest.mark.torchrun
def test_mlperf_logging_reads_the_events(watched: tuple[Any, Path], tmp_path: Path) -> None:
    folder = watched[1]
    parser = pytest.importorskip("mlperf_logging.compliance_checker.mlp_parser.ruleset_500")
    lines, errors = parser.parse_file(str(folder / "job.out"))
    assert errors == []
    keys = [line.key for line in lines]
    borders = ["init_start", "init_stop", "run_start", "block_start", "tracked_stats", "block_stop", "run_stop"]
    assert [keys.index(key) for key in borders] == sorted(keys.index(key) for key in borders)
    assert keys.count("tracked_stats") == 8
    assert [line.timestamp for line in lines] == sorted(line.timestamp for line in lines)
    assert lines[-1].value["metadata"]["status"] == "success"
    result = tmp_path / "result_0.txt"
    result.write_text("".join(f"{line.full_string}\n" for line in lines))
    (alone,), (ours,) = (measure_log(str(path), Overrides()) for path in (result, folder / "job.out"))
    assert alone.dialect == "mlperf-mllog"
    assert alone.reference == pytest.approx(ours.reference, rel=1e-3)


@pytest.mark.torchrun
def test_progress_that_is_asked_for_is_lines_where_there_is_no_terminal(watched: tuple[Any, Path]) -> None:
    told = re.findall(r"iteration (\d+) of 16, \d+ %(?:, \d+ tokens/s, \d+ s left)?\n", watched[0].stderr)
    assert [int(number) for number in told] == list(range(2, 17, 2))
    assert not ROUGH.search(watched[0].stderr.encode())


@pytest.mark.torchrun
def test_weights_and_biases_keeps_our_numbers_offline(
    started: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    monkeypatch.setenv("WANDB_MODE", "offline")
    ended = started(1, f"{MOCK} --wandb-project p --wandb-exp-name try", "--wandb-save-dir", str(tmp_path))
    assert ended.code == 0, ended.stderr
    assert " > Weights & Biases: offline, files in " in ended.stdout
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    store, losses = DataStore(), []
    store.open_for_scan(str(path))
    while (content := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record.FromString(content)
        items = {(item.key or item.nested_key[0]): item.value_json for item in record.history.item}
        losses += [float(items["lm loss"])] if "lm loss" in items else []
    store.close()
    assert losses == pytest.approx(ended.numbers("lm loss"), rel=1e-6)
    assert all(math.isfinite(loss) for loss in losses)
