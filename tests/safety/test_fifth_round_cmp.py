"""Faults of a fifth round of fresh eyes: comparisons, options, what is replaced, and damaged files."""

import gzip
import json
import random
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from support.repeated import write_log, write_runs

import nlp_bench
from nlp_bench.cli.main import main

TIME = re.compile(r"(?<=\(ms\): )[\d.]+")
Capture = pytest.CaptureFixture[str]


def jittered(log: Path, copy: Path, seed: int) -> Path:
    """Write a copy whose times differ by up to 0.1 ms."""
    source = random.Random(seed)  # noqa: S311  # a repeatable test
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(TIME.sub(lambda found: f"{float(found[0]) + source.choice((-0.1, 0, 0.1)):.1f}", log.read_text()))
    return copy


def test_copies_with_other_digits_are_one_run(tmp_path: Path, capsys: Capture) -> None:
    log = write_log(tmp_path / "one.log", 65000, seed=5)
    copies = [jittered(log, tmp_path / f"b/r{seed}.log", seed) for seed in range(5)]
    other = write_runs(tmp_path / "a", *[65000 + 200 * number for number in range(5)], seed=20)
    words = ["compare", str(other), str(tmp_path / "b"), "--gate", "3", "--strict", "--allow-measured"]
    main(words)
    assert capsys.readouterr().out.count("a copy with other digits, or the same uneven work; counted once") == 4
    assert main(["compare", str(log), str(copies[0]), "--gate", "3", "--strict"]) == 1
    assert "1 run(s) of B are runs of A" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "b"), "--allow-measured", "--limit", "400"]) == 0
    assert "one run only" in capsys.readouterr().out
    file = ["--file", str(tmp_path / "h")]
    assert main(["history", "add", str(tmp_path / "b"), *file]) == 0
    assert main(["history", "variance", "--allow-measured", *file]) == 0
    assert "run 2, 3, 4, 5: a copy of another run" in capsys.readouterr().err


def test_runs_that_differ_impossibly_little_prove_nothing(tmp_path: Path, capsys: Capture) -> None:
    """Each has its own noise, and all have one mean to six digits."""
    rates = [65000.0] * 6
    for _ in range(3):  # to one mean
        for number, rate in enumerate(rates):
            path = write_log(tmp_path / f"b/r{number}.log", rate, seed=number, scatter=0.02)
            steady = nlp_bench.measure(nlp_bench.read_log(path)).tokens_per_second.steady
            assert steady is not None
            rates[number] *= 65000 / steady
    other = write_runs(tmp_path / "a", *[65000 + 200 * number for number in range(5)], seed=20)
    words = ["compare", str(other), str(tmp_path / "b"), "--gate", "3", "--strict", "--allow-measured"]
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "B: no independent repeats: each alone has a noise of" in said
    assert "GATE NOT PROVEN" in said
    assert main(["report", str(tmp_path / "b"), "--allow-measured", "--limit", "400"]) == 0
    assert "limit of 400 s: NOT PROVEN (no 95 % interval over runs)" in capsys.readouterr().out
    file = ["--file", str(tmp_path / "h")]
    assert main(["history", "add", str(tmp_path / "b"), *file]) == 0
    assert main(["history", "variance", "--allow-measured", *file]) == 0
    assert "no independent repeats" in capsys.readouterr().err


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


def test_a_log_and_its_tail_are_one_run(tmp_path: Path, capsys: Capture) -> None:
    log = write_log(tmp_path / "one.log", 65000, seed=5)
    _, tail = parted(log, tmp_path / "parts")
    assert main(["report", str(log), str(tail), "--allow-measured"]) == 0
    assert (
        "job.out: the same times of the same iterations as another run: a copy or a part of it"
        in capsys.readouterr().out
    )
    assert main(["compare", str(tail), str(log), "--gate", "9", "--strict"]) == 1
    assert "1 run(s) of B are runs of A" in capsys.readouterr().out


@pytest.mark.parametrize(("pause_s", "is_one"), [(0.0, True), (3600.0, False)])
def test_a_rotated_log_is_one_run(tmp_path: Path, capsys: Capture, pause_s: float, *, is_one: bool) -> None:
    """A job that goes on an hour later is another one."""
    parted(stamped(write_log(tmp_path / "one.log", 65000, seed=5), pause_s), tmp_path / "parts")
    assert main(["report", str(tmp_path / "parts"), "--allow-measured"]) == 0
    said = capsys.readouterr().out
    assert ("goes on where another log ends, or ends where it begins: one run" in said) == is_one
    assert ("2 runs:" in said) != is_one
    file = ["--file", str(tmp_path / "h")]
    assert main(["history", "add", str(tmp_path / "parts"), *file]) == 0
    assert main(["history", "variance", "--allow-measured", *file]) == 0
    assert ("goes on where another log ends" in capsys.readouterr().err) == is_one


def test_a_named_gpu_that_cannot_have_done_it_is_refused(tmp_path: Path, capsys: Capture) -> None:
    log = write_log(tmp_path / "a.log", 50000, ffn_hidden_size=16384, padded_vocab_size=50304)
    words = ["report", str(log), "--limit", "500"]
    assert main([*words, "--gpu", "V100 PCIe", "--num-gpus", "1"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"REFUSED +NOT PROVEN", said)
    assert re.search(
        r"on 1 GPU\(s\) are 2\d\d\d TFLOP/s per GPU, more than the 112 that NVIDIA V100 PCIe reaches", said
    )
    assert "correct or leave out: --num-gpus 1 (the log says 16), --gpu V100 PCIe (not in the log)" in said
    (read,) = nlp_bench.read_logs(log, gpu="V100 PCIe", num_gpus=1)
    assert read.outcome is nlp_bench.Outcome.REFUSED
    assert nlp_bench.measure(read).tokens_per_second.steady is None
    assert main([*words, "--gpu", "H100 SXM"]) == 0


def test_numbers_of_numpy_are_numbers_and_booleans_are_not(tmp_path: Path) -> None:
    before = [nlp_bench.read_log(write_log(tmp_path / f"a{n}.log", 65000 + 100 * n, seed=n)) for n in range(3)]
    after = nlp_bench.read_log(write_log(tmp_path / "b.log", 65000, seed=9), num_gpus=np.int64(16))  # type: ignore[arg-type]  # as users do
    for limit in (np.int64(420), np.float64(420), np.float32(420), 420, 420.0):
        found = nlp_bench.measure(after, limit=limit, tokens=np.int64(10**7))  # type: ignore[arg-type]  # likewise
        assert found.verdict
        assert found.verdict.word == "PASS"
        assert json.loads(json.dumps(found.to_dict()))["limit_s"] == 420
    for gate in (np.float64(3), np.int32(3), 3):
        compared = nlp_bench.compare(before, after, gate=gate)  # type: ignore[arg-type]  # likewise
        assert json.loads(json.dumps(compared.to_dict()))["gate"]["percent"] == 3
    for wrong in (True, np.bool_(True), "3", np.array([3.0]), 10**400, float("nan")):
        with pytest.raises(nlp_bench.NlpBenchError, match=r"limit: .* is no number of seconds"):
            nlp_bench.measure(after, limit=wrong)  # type: ignore[arg-type]  # likewise
        for name in ("gate", "equivalent"):
            with pytest.raises(nlp_bench.NlpBenchError, match=f"{name}: .* is no percentage"):
                nlp_bench.compare(before, after, **{name: wrong})  # type: ignore[arg-type]  # likewise
    with pytest.raises(nlp_bench.NlpBenchError, match=r"pattern: .* is no text"):
        nlp_bench.read_log(tmp_path / "b.log", pattern=re.compile("(?P<elapsed_ms>1)"))  # type: ignore[arg-type]  # likewise


@pytest.mark.parametrize("option", [["--limit", "3"], ["--scaling"], ["--pattern", "x"], ["--tokens", "3"]])
def test_a_list_of_dialects_answers_no_question(capsys: Capture, option: list[str]) -> None:
    assert main(["report", "--dialects", *option]) == 2
    assert f"takes no {option[0]}; leave one of the two out" in capsys.readouterr().err
    assert main(["report", "--dialects"]) == 0


@pytest.mark.parametrize("view", ["--scaling", "--sweep"])
def test_a_view_drops_no_option(tmp_path: Path, capsys: Capture, view: str) -> None:
    runs = [write_log(tmp_path / f"g{n}.log", 4000 * n, seed=n, world_size=n) for n in (16, 32)]
    words = ["report", *map(str, runs), view, "--allow-measured"]
    for option in (["--limit", "300"], ["--price-per-kwh", "0.2"]):
        assert main([*words, *option]) == 2
        said = capsys.readouterr().err
        assert (
            f"{option[0]} is answered for each run, which {view} does not show; leave one out, or add --output DIR"
            in said
        )
    assert main([*words, "--limit", "300", "--output", str(tmp_path / "out")]) == 0
    assert re.search(r"PASS|FAIL", (tmp_path / "out/report.csv").read_text())
    capsys.readouterr()
    assert main([*words, "--rules", "jupiter-nlp"]) == 1
    assert re.search(r"g16.log(?: and 1 more)?: rules jupiter-nlp: ", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "LOG", "--sequence-length", "2048", "--seq-length", "8Ki"], "as 2048 and as 8Ki"),
        (["report", "LOG", "--limit", "300", "--limit=400"], "--limit: given twice, as 300 and as 400; give it once"),
        (["compare", "LOG", "LOG", "--gate", "3", "--gate", "1"], "--gate: given twice, as 3 and as 1; give it once"),
        (["check", "--model", "13", "--data-path", "x", "--mock-data"], "given twice, as x and as --mock-data"),
        (["check", "--model", "13", "--model", "175"], "--model: given twice, as 13 and as 175; give it once"),
    ],
)
def test_an_option_has_one_value(tmp_path: Path, capsys: Capture, words: list[str], said: str) -> None:
    log = write_log(tmp_path / "a.log", 65000)
    assert main([str(log) if word == "LOG" else word for word in words]) == 2
    assert said in capsys.readouterr().err
    assert (
        main(
            [
                "report",
                str(log),
                "--limit",
                "400",
                "--limit",
                "400s",
                "--sequence-length",
                "4096",
                "--seq-length",
                "4Ki",
            ]
        )
        == 0
    )


@pytest.mark.parametrize("name", ["report.csv", "loss.png", "scaling-efficiency.svg"])
def test_a_report_replaces_nothing_of_others(tmp_path: Path, capsys: Capture, name: str) -> None:
    log, out = write_log(tmp_path / "a.log", 65000), tmp_path / "out"
    words = ["report", str(log), "--output", str(out), "--scaling"]
    out.mkdir()
    (out / name).write_text("mine")
    assert main(words) == 2
    assert f"{name} there is none of an earlier call and would be replaced" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == [name]
    (out / name).unlink()
    assert [main(words), main(words)] == [0, 0]
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(tmp_path / "precious")
    assert main(words) == 2
    assert f"{name} there is a link and would be replaced; move it, or give another folder" in capsys.readouterr().err
    assert main([*words[:3], str(log)]) == 2
    assert f"--output {log} cannot be written: it is a file; give a folder" in capsys.readouterr().err


def test_a_trend_replaces_nothing_of_others(tmp_path: Path, capsys: Capture) -> None:
    file, out = ["--file", str(tmp_path / "h")], tmp_path / "out"
    assert main(["history", "add", str(write_log(tmp_path / "a.log", 65000)), *file]) == 0
    words = ["history", "trend", *file, "--allow-measured", "--output", str(out)]
    assert [main(words), main(words)] == [0, 0]
    (out / "trend.json").write_text("{}")
    capsys.readouterr()
    assert main(words) == 2
    assert "would be replaced" in capsys.readouterr().err


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
    assert "4 binary file(s) are passed over: tokens, utf-16, weights, zeros" in capsys.readouterr().out.replace(
        "\\", ""
    )


@pytest.mark.parametrize("kind", ["flipped", "bad sum", "cut"])
def test_a_damaged_packed_log_has_its_remedy(tmp_path: Path, capsys: Capture, kind: str) -> None:
    packed = bytearray(gzip.compress(write_log(tmp_path / "a.log", 65000).read_bytes()))
    at = len(packed) // 2 if kind == "flipped" else -6
    packed[at] ^= 0xFF
    (tmp_path / "a.gz").write_bytes(packed[:-40] if kind == "cut" else packed)
    main(["report", str(tmp_path / "a.gz")])
    assert "the compressed file is cut or damaged: test it (gzip -t" in capsys.readouterr().out
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
def test_a_rate_that_somebody_wants_is_not_measured(tmp_path: Path, capsys: Capture, rate: str) -> None:
    log, lines = tmp_path / "a.log", [f"step {n} loss {9 - n / 20:.4f} {rate}" for n in range(1, 41)]
    log.write_text("\n".join(lines))
    assert main(["report", str(log)]) == 1
    assert "none that states tokens per second" in capsys.readouterr().out
    log.write_text("\n".join(f"{line} tokens/s {100000 + 7 * n % 90}" for n, line in enumerate(lines)))
    assert main(["report", str(log), "--num-gpus", "8", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["tokens_per_second"]["steady"] == pytest.approx(
        100045, rel=1e-3
    )
