"""Columns and lines: FLOP/s and utilisation where they are known, and `--format records-csv`, every logged line and whether it counts."""

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import Cli
from support.megatron_log import dump
from support.published import published_log, write_run

from nlp_bench.measure.rows import MEANING

ARGUMENTS: dict[str, object] = {
    "hidden_size": 12288, "num_layers": 96, "num_attention_heads": 96, "ffn_hidden_size": 49152, "seq_length": 2048,
    "padded_vocab_size": 51200, "world_size": 384, "bf16": True, "swiglu": False,
}  # fmt: skip
DUMP = dump(**ARGUMENTS)


@pytest.fixture
def dumped(tmp_path: Path) -> str:
    """The five published lines behind the arguments of their model."""
    path = tmp_path / "dumped.log"
    path.write_text(DUMP + published_log())
    return str(path)


def test_the_columns_are_there_where_they_are_known(dumped: str, log: Path, cli: Cli) -> None:
    assert "TFLOP/s" not in cli("report", log, "--sequence-length", "2048", code=None).out
    shown = cli("report", dumped, code=None).out
    assert ", 100.6 TFLOP/s\n" in shown
    shown = cli("report", dumped, "--gpu", "A100", code=None).out
    assert ", 100.6 TFLOP/s, MFU 32.2 %\n" in shown
    shown = cli("report", dumped, "--gpu", "A100", "--explain", code=None).out
    assert "model FLOPs, causal attention as half (newer Megatron-LM); MFU" in shown


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ({}, "causal attention as half (newer Megatron-LM)"),
        ({"model_family": "bert", "bert_no_binary_head": True}, "attention in full, the head that guesses tokens at every token"),
        ({"model_family": "t5", "decoder_seq_length": 128}, "the decoder's causal attention counted as half, the encoder's and"),
    ],
)  # fmt: skip
def test_the_explanation_counts_attention_as_the_family_does(
    family: dict[str, object], words: str, tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "a.log"
    path.write_text(dump(**ARGUMENTS, **family) + published_log())
    said = [
        line for line in cli("report", path, "--explain", code=None).out.splitlines() if " per token: model, " in line
    ]
    assert [words in line for line in said] == [True, False], said
    assert f"TFLOP/s per GPU: model FLOPs, {words}" in cli("report", path, "--explain", code=None).out


def test_the_csv_has_every_count_and_nothing_for_what_is_not_known(dumped: str, cli: Cli) -> None:
    said = cli("report", dumped, "--gpu", "A100", "--precision", "fp16", "--format", "csv", code=None).out
    (row,) = csv.DictReader(io.StringIO(said))
    assert float(row["mfu"]) == pytest.approx(float(row["model_tflops_per_gpu"]) / 312)
    assert float(row["mfu_full_attention"]) > float(row["mfu"])
    assert (row["hardware_tflops_per_gpu"], row["hfu"], row["legacy_tflops_per_gpu"]) == ("", "", "")


Rows = list[dict[str, str]]


@pytest.fixture
def records(report: Cli) -> Callable[..., tuple[int, Rows]]:
    def run(*words: object) -> tuple[int, Rows]:
        code, out, _ = report(*words, "--format", "records-csv")
        reader = csv.DictReader(io.StringIO(out))
        assert reader.fieldnames == list(MEANING)
        return code, list(reader)

    return run


Records = Callable[..., tuple[int, Rows]]


def test_the_rows_in_the_window_give_the_steady_rate(records: Records, log: Path) -> None:
    code, rows = records(log, "--sequence-length", 2048)
    assert code == 0
    assert [row["iteration"] for row in rows] == ["10", "20", "30", "40", "50"]
    assert [row["in_window"] for row in rows] == ["no", "yes", "yes", "yes", "yes"]
    assert [row["why_excluded"] for row in rows] == ["warm-up", "", "", "", ""]
    inside = [row for row in rows if row["in_window"] == "yes"]
    rate = math.fsum(float(row["num_tokens"]) for row in inside) / math.fsum(float(row["seconds"]) for row in inside)
    assert round(rate, 1) == 36361.6
    first = rows[0]
    assert (first["source"], first["attempt"], first["line_number"], first["num_iterations"]) == (
        str(log),
        "1",
        "1",
        "10",
    )
    assert (float(first["elapsed_s"]), float(first["seconds"])) == (7.231, pytest.approx(72.31))
    printed = [first[name] for name in ("lm_loss", "learning_rate", "grad_norm", "samples_per_second", "tflops")]
    assert [float(text) for text in printed] == [10.10967, 4.438e-07, 178.553, 13.276, 101.54]
    assert (first["tokens_per_second"], first["stamp_s"], first["sequence_length"]) == ("", "", "")  # the line has none


def test_a_log_without_a_number_has_its_lines(records: Records, log: Path) -> None:
    code, rows = records(log)
    assert (code, len(rows)) == (1, 5)
    assert {(row["in_window"], row["why_excluded"], row["seconds"]) for row in rows} == {("no", "no number", "")}
    assert float(rows[0]["lm_loss"]) == 10.10967


def test_restarts_and_losses_that_are_no_numbers(records: Records, tmp_path: Path) -> None:
    lines = published_log(total=50).splitlines()
    before = [line.replace("time per iteration (s): ", "time per iteration (s): 1") for line in lines[:2]]
    (tmp_path / "restarted.log").write_text("\n".join([*before, *lines]))
    (tmp_path / "diverged.log").write_text("\n".join([*lines[:4], lines[4].replace("8.110270E+00", "nan")]))
    code, rows = records(tmp_path / "restarted.log", tmp_path / "diverged.log", "--sequence-length", 2048)
    assert code == 1
    assert [(row["attempt"], row["line_number"]) for row in rows[:7]] == [
        ("1", "1"), ("1", "2"), ("2", "3"), ("2", "4"), ("2", "5"), ("2", "6"), ("2", "7"),
    ]  # fmt: skip
    assert [row["why_excluded"] for row in rows[:4]] == ["other attempt", "other attempt", "warm-up", ""]
    assert (rows[-1]["lm_loss"], rows[-1]["why_excluded"]) == ("nan", "no number")
    code, rows = records(write_run(tmp_path / "run"))
    assert (code, len(rows), rows[0]["source"]) == (0, 5, str(tmp_path / "run"))


@pytest.mark.slow
def test_it_is_a_file_too(log: Path, tmp_path: Path, cli: Cli) -> None:
    words = ["report", log, "--sequence-length", "2048", "--format", "records-csv"]
    printed = cli(*words, "--output", tmp_path / "out")
    assert (tmp_path / "out/records.csv").read_text() == printed.out
    assert "records.csv" in printed.err
