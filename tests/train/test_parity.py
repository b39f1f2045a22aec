"""Our trainer against Megatron-LM's own, where a checkout of it is at hand: three of the cases of docs/parity.md."""

import os
import sys
from pathlib import Path

import pytest
from support.processes import execute

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.torchrun
@pytest.mark.skipif(
    "MEGATRON_LM_REPO" not in os.environ,
    reason="set MEGATRON_LM_REPO to a checkout of Megatron-LM core_v0.16.1 to compare the trainer with it (docs/parity.md)",
)
@pytest.mark.parametrize("case", ["llama fp32, TP 2 PP 2", "t5 fp32, TP 2", "gpt fp32, from our checkpoint"])
def test_losses_are_those_of_megatron_lm(case: str, tmp_path: Path) -> None:
    words = ["--only", case, "--steps", "4", "--output", str(tmp_path)]
    done = execute(sys.executable, ROOT / "benchmark/parity/parity.py", *words)
    assert done.returncode == 0, done.stdout + done.stderr
