"""Copies and parts of one run are one run, and prove nothing in a comparison."""

import random
import re
import shutil
from pathlib import Path

import pytest
from support.command import Cli
from support.repeated import MEGATRON, write_log, write_runs

import nlp_bench
from nlp_bench.cli.main import main


def measured(folder: Path, *lines: str, **options: int) -> "nlp_bench.Result":
    (folder / "some.log").write_text("\n".join(lines) + "\n")
    return nlp_bench.measure(nlp_bench.read_log(folder / "some.log", **options))  # type: ignore[arg-type]


def test_two_modes_are_named_as_they_are(tmp_path: Path) -> None:
    lines = [re.sub(r"\(ms\): 5", "(ms): 25", line) if n % 2 else line for n, line in enumerate(MEGATRON)]
    lines = [re.sub(r"^ \[.*?\]", "", line) for line in lines]
    said = " ".join(measured(tmp_path, *lines, sequence_length=4096).reasons)
    modes = "two modes: intervals take either 66.7 % less or 66.7 % more than the mean; the machine changes between two states, or the batch or the work does"
    assert modes in said


TIME = re.compile(r"(?<=\(ms\): )[\d.]+")


def jittered(log: Path, copy: Path, seed: int) -> Path:
    """Write a copy whose times differ by up to 0.1 ms."""
    source = random.Random(seed)  # noqa: S311  # a repeatable test
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(TIME.sub(lambda found: f"{float(found[0]) + source.choice((-0.1, 0, 0.1)):.1f}", log.read_text()))
    return copy


def test_copies_with_other_digits_are_one_run(tmp_path: Path, cli: Cli) -> None:
    log = write_log(tmp_path / "one.log", 65000, seed=5)
    copies = [jittered(log, tmp_path / f"b/r{seed}.log", seed) for seed in range(5)]
    other = write_runs(tmp_path / "a", *[65000 + 200 * number for number in range(5)], seed=20)
    words = ["compare", str(other), str(tmp_path / "b"), "--gate", "3", "--strict", "--allow-measured"]
    assert cli(*words, code=None).out.count("a copy with other digits, or the same uneven work; counted once") == 4
    assert "1 run(s) of B are runs of A" in cli("compare", log, copies[0], "--gate", "3", "--strict", code=1).out
    assert "one run only" in cli("report", tmp_path / "b", "--allow-measured", "--limit", "400").out
    file = ["--file", str(tmp_path / "h")]
    assert main(["history", "add", str(tmp_path / "b"), *file]) == 0
    assert "run 2, 3, 4, 5: a copy of another run" in cli("history", "variance", "--allow-measured", *file).err


def test_runs_that_differ_impossibly_little_prove_nothing(tmp_path: Path, cli: Cli) -> None:
    """Each has its own noise, and all have one mean to six digits."""
    rates = [65000.0] * 6
    for _ in range(3):  # to one mean
        for number, rate in enumerate(rates):
            path = write_log(tmp_path / f"b/r{number}.log", rate, seed=number, scatter=0.02)
            steady = nlp_bench.measure(nlp_bench.read_log(path)).tokens_per_second.steady
            rates[number] *= 65000 / steady
    other = write_runs(tmp_path / "a", *[65000 + 200 * number for number in range(5)], seed=20)
    words = ["compare", str(other), str(tmp_path / "b"), "--gate", "3", "--strict", "--allow-measured"]
    said = cli(*words, code=1).out
    assert "B: no independent repeats: each alone has a noise of" in said
    assert "GATE NOT PROVEN" in said
    text = cli("report", tmp_path / "b", "--allow-measured", "--limit", "400").out
    assert "limit of 400 s: NOT PROVEN (no 95 % interval over runs)" in text
    file = ["--file", str(tmp_path / "h")]
    assert main(["history", "add", str(tmp_path / "b"), *file]) == 0
    assert "no independent repeats" in cli("history", "variance", "--allow-measured", *file).err


def parted(log: Path, folder: Path) -> tuple[Path, Path]:
    """Write the halves of a log with its arguments above each."""
    lines = log.read_text().splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if " iteration " in line)
    folder.mkdir()
    for name, part in (("job.out.1", lines[begin : begin + 15]), ("job.out", lines[begin + 15 :])):
        (folder / name).write_text("".join([*lines[:begin], *part]))
    return folder / "job.out.1", folder / "job.out"


def stamped(log: Path, pause_s: float = 0.0) -> Path:
    """Put the time of day before each line; `pause_s` passes behind line 15."""
    clock, lines = 0.0, list[str]()
    for line in log.read_text().splitlines(keepends=True):
        if found := TIME.search(line):
            clock += float(found[0]) / 100 + (pause_s if " 160/" in line else 0.0)
            lines.append(f" [2026-03-01 {int(clock // 3600):02}:{int(clock // 60 % 60):02}:{clock % 60:09.6f}]{line}")
        else:
            lines.append(line)
    log.write_text("".join(lines))
    return log


def test_a_log_and_its_tail_are_one_run(tmp_path: Path, cli: Cli) -> None:
    log = write_log(tmp_path / "one.log", 65000, seed=5)
    _, tail = parted(log, tmp_path / "parts")
    said = cli("report", log, tail, "--allow-measured").flat
    assert "job.out: the same times of the same iterations as another run: a copy or a part of it" in said
    assert "1 run(s) of B are runs of A" in cli("compare", tail, log, "--gate", "9", "--strict", code=1).out


@pytest.mark.parametrize(("pause_s", "is_one"), [(0.0, True), (3600.0, False)])
def test_a_rotated_log_is_one_run(tmp_path: Path, cli: Cli, pause_s: float, *, is_one: bool) -> None:
    """A job that goes on an hour later is another one."""
    parted(stamped(write_log(tmp_path / "one.log", 65000, seed=5), pause_s), tmp_path / "parts")
    said = cli("report", tmp_path / "parts", "--allow-measured").flat
    assert ("goes on where another log ends, or ends where it begins: one run" in said) == is_one
    assert ("2 runs:" in said) != is_one
    file = ["--file", str(tmp_path / "h")]
    assert main(["history", "add", str(tmp_path / "parts"), *file]) == 0
    assert ("goes on where another log ends" in cli("history", "variance", "--allow-measured", *file).err) == is_one


def test_a_named_gpu_that_cannot_have_done_it_is_refused(tmp_path: Path, cli: Cli) -> None:
    log = write_log(tmp_path / "a.log", 50000, ffn_hidden_size=16384, padded_vocab_size=50304)
    words = ["report", str(log), "--limit", "500"]
    said = cli(*words, "--gpu", "V100 PCIe", "--num-gpus", "1", code=1).flat
    assert re.search(r"REFUSED .* limit NOT PROVEN", said)
    rate = r"on 1 GPU\(s\) are 2\d\d\d TFLOP/s per GPU, more than the 112 that NVIDIA V100 PCIe reaches"
    assert re.search(rate, said)
    assert "correct or leave out: --num-gpus 1 (the log says 16), --gpu V100 PCIe (not in the log)" in said
    (read,) = nlp_bench.read_logs(log, gpu="V100 PCIe", num_gpus=1)
    assert read.outcome is nlp_bench.Outcome.REFUSED
    assert nlp_bench.measure(read).tokens_per_second.steady is None
    assert main([*words, "--gpu", "H100 SXM"]) == 0


def test_a_shared_run_does_not_hide_that_the_others_are_slower(tmp_path: Path, cli: Cli) -> None:
    before = write_runs(tmp_path / "a", 65000, 65600, 64700, 65300, 65100)
    slow = [0.8 * rate for rate in (65000, 65600, 64700, 65300, 65100, 65200) * 2]
    after = write_runs(tmp_path / "b", *slow, seed=40)
    shutil.copy(before / "run1.log", after / "shared.log")
    said = cli("compare", before, after, "--gate", "3", code=1).out
    assert "1 run(s) of B are runs of A" in said
    assert "GATE FAIL" in said
