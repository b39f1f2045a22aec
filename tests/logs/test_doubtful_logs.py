"""Logs that contradict themselves, were damaged or are none: no number, or a number with its doubt."""

import gzip
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backports import zstd
from support.ours import write_our_run
from support.published import published_log
from support.repeated import write_log
from support.reported import Reported

import nlp_bench
from nlp_bench.cli.main import main
from nlp_bench.config.scheduler import get_scheduler
from nlp_bench.launch.end.log_facts import gather
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.reader import OURS, _first_search

Capture = pytest.CaptureFixture[str]


def test_dicts_without_numbers_that_were_cut_out_are_missed(reported: Reported) -> None:
    """`awk '!seen[$0]++'` and `grep loss` took the bars out, and the gap that made it MEASURED was one interval of a VALID run."""
    dicts = [
        f"{{'loss': {2.6 - n / 500:.4f}, 'num_input_tokens_seen': {196608 * n}, 'train_runtime': {20 + 3.54 * n:.4f}}}"
        for n in range(1, 101)
    ]
    end = "{'train_runtime': 374.0, 'train_steps_per_second': 0.267, 'train_loss': 2.48, 'num_input_tokens_seen': 19660800}"
    whole, cut = reported([*dicts, end]), reported([*dicts[:11], *dicts[95:], end])
    assert whole["outcome"] == "VALID"
    assert cut["outcome"] == "MEASURED"
    assert "84 of 100 lines between the first and the last have no time or are not there" in " ".join(cut["reasons"])


@pytest.mark.parametrize("word", ["XXXX", "***", "[REDACTED]", "\u2588\u2588"])
def test_redacted_losses_leave_the_rate_of_torchtitan(reported: Reported, word: str) -> None:
    lines = [
        f"[rank0]:[titan] 2026-11-28 08:{n // 60:02d}:{n % 60:02d},000 - root - INFO - step: {n:2}  loss: {word}  memory: 40.1GiB(42.20%)  "
        f"tps: {7000 + n % 3:,}  tflops: 400.1  mfu: 40.45%\n"
        for n in range(1, 60)
    ]
    run = reported("".join(lines), "--num-gpus", "8")
    assert run["outcome"] == "MEASURED"
    assert run["tokens_per_second"]["steady"] == pytest.approx(8 * 7001, rel=1e-3)


def measured(folder: Path, *lines: str, **options: Any) -> nlp_bench.Result:
    (folder / "some.log").write_text("\n".join(lines) + "\n")
    return nlp_bench.measure(nlp_bench.read_log(folder / "some.log", **options))


def has_no_number(result: nlp_bench.Result, said: str) -> bool:
    return result.tokens_per_second.steady is None and said in result.reasons[0]


def titan(steps: int = 60) -> list[str]:
    return [
        f"[rank0]:[titan] 2026-01-01 10:{n // 15:02}:{4 * (n % 15):02},000 - root - INFO - step: {n}  loss: {9 - n / 20:.5f}  grad_norm:  1.0000  "
        f"memory: 40.00GiB(50.00%)  tps: {4000 + n % 7}  tflops: 200.00  mfu: 20.00%"
        for n in range(1, steps + 1)
    ]


def nano(steps: int = 60) -> list[str]:
    return [f"iter {n}: loss {9 - n / 20:.4f}, time {500 + n % 7:.2f}ms, mfu 40.00%" for n in range(steps)]


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        (
            ["+ torchrun --nnodes=64 --nproc_per_node=8 train.py", "+ torchrun --nnodes=1 --nproc_per_node=8 train.py", *titan()],
            {},
            "number of GPUs is 512 in line 1 and 8 in line 2",
        ),
        (["+ echo 'usage: torchrun --nnodes=64 --nproc_per_node=8 train.py'", *titan()], {}, "not in the log: number of GPUs"),
        (
            ["tokens per iteration will be: 983,040", "torch.OutOfMemoryError", "tokens per iteration will be: 491,520", *nano()],
            {"sequence_length": 1024, "num_gpus": 8},
            "tokens per iteration is 983040 in line 1 and 491520 in line 3",
        ),
        (
            ["Num_devices: 256, shape (256,)", "Num_devices: 8, shape (8,)"]
            + [f"completed step: {n}, seconds: {4 + n % 7 / 1000}, TFLOP/s/device: 100.0, Tokens/s/device: 4096.0, loss: {9 - n / 20:.3f}" for n in range(40)],
            {},
            "number of GPUs is 256 in line 1 and 8 in line 2",
        ),
    ],
)  # fmt: skip
def test_of_two_different_sizes_neither_counts(
    tmp_path: Path, lines: list[str], options: dict[str, int], said: str
) -> None:
    """A start that failed, a program before the training: the first of its sizes made the number many times too fast."""
    result = measured(tmp_path, *lines, **options)
    assert has_no_number(result, said)
    assert result.outcome.value == "REFUSED"


MEGATRON = [
    f" [2026-01-01 10:{n // 12:02}:{5 * (n % 12):02}] iteration {n}/ 60 | consumed samples: {64 * n} | elapsed time per iteration (ms): {5000 + n % 7}.1 | "
    f"global batch size: 64 | lm loss: {9 - n / 20:.6E} | grad norm: 1.000 |"
    for n in range(1, 61)
]


@pytest.mark.parametrize(
    "decoy",
    [
        "# srun pretrain_gpt.py --seq-length 8192", "usage: pretrain_gpt.py [-h] [--seq-length 8192]",
        "+ python tasks/main.py --task LAMBADA --seq-length 8192", "submitted next job: sbatch train.sh --seq-length 8192",
    ],
)  # fmt: skip
def test_a_length_that_no_training_states_does_not_count(tmp_path: Path, decoy: str) -> None:
    for lines in ([decoy, *MEGATRON], [*MEGATRON, decoy], [*MEGATRON, "+ python pretrain_gpt.py --seq-length 8192"]):
        assert "not in the log: sequence length" in measured(tmp_path, *lines).reasons[0]
    honest = measured(tmp_path, "+ python pretrain_gpt.py --seq-length 4096", *MEGATRON, decoy)
    assert honest.log.sequence_length == 4096


def llm_c(loss: str) -> list[str]:
    head = ["| total batch size      | 524288 |", "| sequence length T     | 1024 |", "| num_processes         | 8 |"]
    return head + [
        f"step {n:4d}/60 | loss {7 - n / 20:.6f} (+0.10z)| norm 1.0000 (-0.10z)| lr 1.00e-04 | {500 + n % 7}.00 ms | 40.0% bf16 MFU | 1048576 tok/s"
        if n < 20
        else f"step {n:4d}/60 | loss {loss} (+nanz)| norm {loss} (+nanz)| lr 1.00e-04 | {500 + n % 7}.00 ms | 40.0% bf16 MFU | 1048576 tok/s"
        for n in range(1, 61)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        *map(llm_c, ("nan", "-nan", "inf")),
        [f"Epoch 0:  {n}%|###  | {n}/100 [{n // 30:02}:{2 * (n % 30):02}<01:00,  2.00s/it, v_num=0, train_loss=nan]" for n in range(1, 101)],
    ],
)  # fmt: skip
def test_a_loss_that_is_no_number_has_none(tmp_path: Path, lines: list[str]) -> None:
    result = measured(tmp_path, *lines, sequence_length=1024, global_batch_size=512, num_gpus=8)
    assert (result.outcome.value, result.tokens_per_second.steady) == ("INVALID", None)
    assert "loss is nan" in result.reasons[0] or "loss is inf" in result.reasons[0]


def test_transformers_print_a_loss_of_zero_where_it_is_no_number(tmp_path: Path) -> None:
    lines = [
        f"{{'loss': {9 - n / 20:.4f}, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1, 'num_input_tokens_seen': {65536 * n}, 'train_runtime': {2.0 * n}}}"
        for n in range(1, 21)
    ]
    lines += [line.replace(line[9:15], "0.0", 1).replace("1.2", "nan") for line in lines]
    assert has_no_number(measured(tmp_path, *lines, num_gpus=8, sequence_length=2048), "the loss is no number any more")


def test_lines_without_the_loss_of_the_others_are_doubted(tmp_path: Path) -> None:
    lines = [re.sub(r" lm loss: \S+ \|", "", line) if n >= 20 else line for n, line in enumerate(MEGATRON)]
    result = measured(tmp_path, *lines, sequence_length=4096)
    assert result.outcome.value == "MEASURED"
    assert [found.code.name for found in result.contradictions] == ["SILENT_LINES"]


SIZED = {"sequence_length": 2048, "global_batch_size": 64}


def test_a_pattern_that_takes_a_part_of_a_number_is_refused(tmp_path: Path) -> None:
    lines = [f"step {n} loss {9 - n / 20:.3f} took {512.5 + n % 7} ms" for n in range(1, 61)]
    greedy = r"step (?P<iteration>\d+) loss (?P<lm_loss>[\d.]+).*(?P<elapsed_ms>[\d.]+) ms"
    for pattern in (greedy, r"step (?P<iteration>\d+) .*?(?P<elapsed_ms>\d\d\.\d) ms"):
        assert has_no_number(measured(tmp_path, *lines, pattern=pattern, **SIZED), "pattern: elapsed_ms takes")
    whole = measured(tmp_path, *lines, pattern=greedy.replace(".*", ".*?", 1), **SIZED)
    assert whole.tokens_per_second.steady == pytest.approx(64 * 2048 / 0.5155, rel=0.01)


@pytest.mark.parametrize("unit", ["k", " k"])
def test_a_pattern_that_leaves_out_the_thousands_is_refused(tmp_path: Path, unit: str) -> None:
    lines = [f"step {n} {70.5 + n % 7 / 10:.1f}{unit} tok/s" for n in range(1, 61)]
    pattern = r"step (?P<iteration>\d+) (?P<tokens_per_second>[\d.]+)"
    without = measured(tmp_path, *lines, pattern=pattern)
    assert has_no_number(without, f"pattern: tokens_per_second takes 70.6 of 70.6{unit} in line 1")
    whole = measured(tmp_path, *lines, pattern=pattern[:-1] + unit + ")")
    assert whole.tokens_per_second.steady == pytest.approx(70_800, rel=0.01)


@pytest.mark.parametrize("blank", [" ", "\n"])
def test_a_pattern_of_a_size_that_fits_several_numbers_is_refused(tmp_path: Path, blank: str) -> None:
    sizes = blank.join(("micro_batch_size=4", "eval_batch_size=16", "global_batch_size=512"))
    lines, step = (
        [f"step {n} took {512 + n % 7} ms" for n in range(1, 61)],
        r"step (?P<iteration>\d+) took (?P<elapsed_ms>\d+) ms",
    )
    several, one = (
        measured(
            tmp_path,
            sizes,
            *lines,
            pattern=[step, f"{front}batch_size=(?P<global_batch_size>\\d+)"],
            sequence_length=2048,
        )
        for front in ("", "global_")
    )
    assert has_no_number(
        several, "it contradicts itself, so that neither counts: global batch size is 4 in line 1 and "
    )
    assert one.tokens_per_second.steady == pytest.approx(512 * 2048 / 0.515, rel=0.01)


def test_a_pattern_that_takes_a_time_in_another_unit_is_refused(tmp_path: Path) -> None:
    times = [f"{t:.1f} ms" if t < 1000 else f"{t / 1000:.3f} s" for t in (990 + n % 9 * 2.5 for n in range(1, 61))]
    lines, front = [f"step {n} took {time}, s: 5" for n, time in enumerate(times, 1)], r"step (?P<iteration>\d+) took "
    for name, line in (("elapsed_ms", "1.000 of 1.000 s in line 4"), ("elapsed_s", "992.5 of 992.5 ms in line 1")):
        wrong = measured(tmp_path, *lines, pattern=rf"{front}(?P<{name}>[\d.]+)", **SIZED)
        assert has_no_number(wrong, f"pattern: {name} takes {line}")
    both = measured(tmp_path, *lines, pattern=front + r"(?:(?P<elapsed_ms>[\d.]+) ms|(?P<elapsed_s>[\d.]+) s)", **SIZED)
    assert both.tokens_per_second.steady == pytest.approx(64 * 2048, rel=0.01)


@pytest.mark.parametrize("is_mean", [True, False])
@pytest.mark.parametrize(("unit", "written"), [("min", "{0:.2f}m"), ("clock", "{1:d}:{2:02d}")])
def test_a_pattern_that_takes_a_mean_since_the_start_is_refused(
    tmp_path: Path, unit: str, written: str, *, is_mean: bool
) -> None:
    """The steps slow down, by 20 %: the mean since the start is too fast for them."""
    times = np.repeat([1.0, 1.2], [40, 160]).tolist()
    clock = np.cumsum(times).tolist()
    lines = [
        f"{n}/20000 loss: {9 - n / 100:.3f} time: {written.format(at / 60, int(at // 60), int(at % 60))} "
        f"tok/s: {65536 * (n / at if is_mean else 1 / times[n - 1]):.0f}"
        for n, at in enumerate(clock, 1)
    ]
    rates = measured(tmp_path, *lines, pattern=r"^(?P<iteration>\d+)/\d+ .*tok/s: (?P<tokens_per_second>[\d.]+)")
    assert has_no_number(rates, "the rate is the mean since the start") if is_mean else rates.tokens_per_second.steady
    by_clock = rf"^(?P<iteration>\d+)/\d+ .* time: (?P<clock_{unit}>[\d.:]+)"
    result = measured(tmp_path, *lines, pattern=by_clock, sequence_length=1024, global_batch_size=64)
    assert result.tokens_per_second.steady == pytest.approx(65536 * 199 / (clock[-1] - 1), rel=0.02)


def test_times_that_change_a_thousandfold_are_of_another_unit(tmp_path: Path) -> None:
    lines = [
        re.sub(r"\(ms\): (\d)(\d+)\.1", r"(ms): \1.\2", line) if n >= 30 else line for n, line in enumerate(MEGATRON)
    ]
    lines = [re.sub(r"^ \[.*?\]", "", line) for line in lines]
    result = measured(tmp_path, *lines, sequence_length=4096)
    assert result.outcome.value == "INVALID"
    assert [found.code.name for found in result.contradictions] == ["OTHER_SCALE"]


def test_a_run_of_ours_whose_lines_lost_their_loss_has_no_number(tmp_path: Path) -> None:
    run = write_our_run(tmp_path / "run")
    log = run / "job.out"
    lines = log.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if "lm loss" in line)
    lines[last] = re.sub(r" lm loss: \S+ \|", "", lines[last])
    log.write_text("".join(lines))
    found = nlp_bench.measure(nlp_bench.read_log(run))
    assert (found.outcome.value, found.tokens_per_second.steady) == ("INVALID", None)
    assert f"have no loss, the first of them line {last + 1}" in found.reasons[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_link_to_somebody_elses_file_puts_no_line_of_it_into_a_record(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("RuntimeError: password=xyz123\n")
    for name in ("job.out", "job.err"):
        (tmp_path / "run" / name).symlink_to(secret)
    scheduler = get_scheduler("local")
    assert gather(tmp_path / "run", scheduler).error == "RuntimeError: password=xyz123"  # one's own
    os.chown(secret, 65534, 65534)
    assert gather(tmp_path / "run", scheduler).error is None


def test_another_logging_interval_is_thought_of_where_lines_seem_to_be_missing(tmp_path: Path) -> None:
    lines = [line for n, line in enumerate(MEGATRON, 1) if n > 40 or n % 5 == 0]
    result = measured(tmp_path, *lines, sequence_length=4096)
    assert "unless the program logged every 5 iterations there" in " ".join(result.reasons)


def test_a_log_with_a_hole_is_read_from_a_folder_too(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "logs"
    text = write_log(folder / "whole.log", 65000).read_bytes()
    middle = text.index(b"\n", len(text) // 2) + 1
    (folder / "hole.log").write_bytes(text[:middle] + bytes(4096) + text[middle:])
    (folder / "front.log").write_bytes(bytes(3 << 20) + b"\n" + text)
    (folder / "packed.gz").write_bytes(gzip.compress(text[:middle] + bytes(100) + text[middle:]))
    (folder / "zeros").write_bytes(bytes(1 << 20))
    (folder / "weights").write_bytes(np.arange(4096, dtype=np.float32).tobytes())
    (folder / "tokens").write_bytes(np.full(4096, 65, dtype=np.int32).tobytes())
    (folder / "utf-16").write_bytes("words of somebody\n".encode("utf-16") * 9)
    main(["report", str(folder), "--format", "json"])
    said = capsys.readouterr()
    assert sorted(Path(run["source"]).name for run in json.loads(said.out)["runs"]) == [
        "front.log",
        "hole.log",
        "packed.gz",
        "whole.log",
    ]
    main(["report", str(folder)])
    assert "4 binary file(s) are passed over: tokens, utf-16, weights, zeros" in " ".join(
        capsys.readouterr().out.split()
    ).replace("\\", "")


@pytest.mark.parametrize("kind", ["flipped", "bad sum", "cut", "zstd --long"])
def test_a_damaged_packed_log_has_its_remedy(tmp_path: Path, capsys: Capture, kind: str) -> None:
    packed = bytearray(gzip.compress(write_log(tmp_path / "a.log", 65000).read_bytes()))
    at = len(packed) // 2 if kind == "flipped" else -6
    packed[at] ^= 0xFF
    if kind == "zstd --long":  # nothing is wrong with it
        packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
        packed = bytearray(packer.compress((tmp_path / "a.log").read_bytes()) + packer.flush())
    (tmp_path / "a.gz").write_bytes(packed[:-40] if kind == "cut" else packed)
    main(["report", str(tmp_path / "a.gz"), "--explain"])
    said = capsys.readouterr().out
    assert "the compressed file is cut or damaged, or asks for more memory than is given here: test it (gzip -t" in said
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.log")
    assert main(["report", str(tmp_path / "b.tar.gz")]) == 1
    said = capsys.readouterr().out
    assert "tar is not read; unpack it" in said
    assert "cut or damaged" not in said


@pytest.mark.parametrize(
    "rate",
    [
        "target 200000 tokens/s, reached 50 %",
        "roofline_tokens_per_second: 200000",
        "expected rate: 200k tokens/s",
        "target tokens/s: 200000",
    ],
)
def test_a_rate_that_somebody_wants_is_not_measured(
    tmp_path: Path, capsys: Capture, reported: Reported, rate: str
) -> None:
    log, lines = tmp_path / "a.log", [f"step {n} loss {9 - n / 20:.4f} {rate}" for n in range(1, 41)]
    log.write_text("\n".join(lines))
    assert main(["report", str(log)]) == 1
    said = capsys.readouterr().out
    assert "REFUSED" in said
    assert "(?P<" not in said
    found = reported([f"{line} tokens/s {100000 + 7 * n % 90}" for n, line in enumerate(lines)], "--num-gpus", "8")
    assert found["tokens_per_second"]["steady"] == pytest.approx(100045, rel=1e-3)


SIZES = ("--sequence-length", "2048", "--num-gpus", "384")


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_an_archive_is_no_log(tmp_path: Path, reported: Reported, ending: str) -> None:
    (tmp_path / "a.log").write_text(published_log())
    path = tmp_path / f"logs.tar{ending}"
    with tarfile.open(path, f"w:{ending[1:]}") as archive:
        archive.add(tmp_path / "a.log", "a.log")
        archive.add(tmp_path / "a.log", "b.log")
    run = reported(path, *SIZES)
    assert (run["outcome"], run["tokens_per_second"]["steady"]) == ("REFUSED", None)
    assert "tar is not read; unpack it" in " ".join(run["reasons"])


def test_of_a_refused_log_no_attempt_is_measured(tmp_path: Path, reported: Reported) -> None:
    lines = write_log(tmp_path / "a.log", 65000).read_text().splitlines()
    reasons = " ".join(reported(reversed(lines), *SIZES)["reasons"])
    assert "the iterations jump back" in reasons
    assert "is measured" not in reasons


@pytest.mark.parametrize(("left_out", "said"), [((), "without what lies between the lines,"), ((-6, -5), "without the 2 lines that are missing"), ((-6,), "without the 1 line that is missing")])  # fmt: skip
def test_what_is_missing_is_no_part_of_the_sustained_time(
    tmp_path: Path, capsys: Capture, left_out: tuple[int, ...], said: str
) -> None:
    lines = write_log(tmp_path / "a.log", 65000).read_text().splitlines(keepends=True)
    (tmp_path / "a.log").write_text(
        "".join(line for number, line in enumerate(lines) if number - len(lines) not in left_out)
    )
    assert main(["report", str(tmp_path / "a.log"), *SIZES, "--explain"]) == 0
    assert f"Sustained, {said} from iterations" in capsys.readouterr().out


def test_a_folder_as_standard_input_is_a_sentence(tmp_path: Path) -> None:
    command = Path(__file__).resolve().parents[2] / "benchmark/env/nlp-bench"
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        done = subprocess.run(
            [command, "report", "-"], stdin=folder, capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        os.close(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nlp-bench: error: standard input is a folder")


def test_a_package_without_its_own_dialect_says_so_and_judges_no_log(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an interrupted copy: the file of the dialect is not there."""
    run = write_our_run(tmp_path / "run")
    others = tuple(dialect for dialect in all_dialects() if dialect.name != OURS)
    monkeypatch.setattr("nlp_bench.logs.reader.all_dialects", lambda: others)
    _first_search.cache_clear()
    assert main(["report", str(run)]) == 1
    said = "".join(capsys.readouterr())
    _first_search.cache_clear()
    assert f"the dialect {OURS} is missing in this nlp-bench: install it again" in said
    assert "INCOMPLETE" not in said


DUMP = """------------------------ arguments ------------------------
  global_batch_size ............................... 96
  seq_length ...................................... 8192
  world_size ...................................... 4
-------------------- end of arguments ---------------------
"""


@pytest.mark.parametrize(("before", "behind", "length"), [("", DUMP, None), (DUMP, "", 8192)])
def test_the_settings_of_a_start_that_printed_no_line_are_not_those_of_the_run_before(
    reported: Reported, before: str, behind: str, length: int | None
) -> None:
    run = reported(before + published_log() + behind)
    assert (run["sequence_length"], run["outcome"] == "REFUSED") == (length, length is None)


def test_a_time_without_its_unit_is_not_called_cut(tmp_path: Path, capsys: Capture) -> None:
    line = " iteration {:8}/ 400 | consumed samples: {:12} | elapsed time per iteration: 10600.0 | global batch size: 64 | lm loss: 9.1E+00 |\n"
    (tmp_path / "a.log").write_text("".join(line.format(n, 64 * n) for n in range(10, 60, 10)))
    assert main(["report", str(tmp_path / "a.log")]) == 1
    assert "begin like one, but are cut, spliced, or lack a word, such as a unit" in " ".join(
        capsys.readouterr().out.split()
    )
