"""FLOP/s and utilisation at the terminal: columns where they are known, --gpu and --precision, refusals."""

import csv
import io
from pathlib import Path

import pytest
from support.command import Ask
from support.published import published_log

DUMP = """  hidden_size ................. 12288
  num_layers .................. 96
  num_attention_heads ......... 96
  ffn_hidden_size ............. 49152
  seq_length .................. 2048
  padded_vocab_size ........... 51200
  world_size .................. 384
  bf16 ........................ True
  swiglu ...................... False
"""


@pytest.fixture
def dumped(tmp_path: Path) -> str:
    """The five published lines behind the arguments of their model."""
    path = tmp_path / "dumped.log"
    path.write_text(DUMP + published_log())
    return str(path)


def test_the_columns_are_there_where_they_are_known(dumped: str, log: Path, told: Ask) -> None:
    assert "TFLOP/s" not in told("report", log, "--sequence-length", "2048", code=None).out
    shown = told("report", dumped, code=None).out
    assert "  100.6\n" in shown
    assert "MFU\n" not in shown
    shown = told("report", dumped, "--gpu", "A100", code=None).out
    assert "  100.6  32.2*\n" in shown
    assert "causal attention counted as half" in shown


def test_the_csv_has_every_count_and_nothing_for_what_is_not_known(dumped: str, told: Ask) -> None:
    said = told("report", dumped, "--gpu", "A100", "--precision", "fp16", "--format", "csv", code=None).out
    (row,) = csv.DictReader(io.StringIO(said))
    assert float(row["mfu"]) == pytest.approx(float(row["model_tflops_per_gpu"]) / 312)
    assert float(row["mfu_full_attention"]) > float(row["mfu"])
    assert (row["hardware_tflops_per_gpu"], row["hfu"], row["legacy_tflops_per_gpu"]) == ("", "", "")
