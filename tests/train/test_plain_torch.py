"""Our trainer against an independent one: the plain PyTorch models of benchmark/perf train on the same batches."""

import json
import sys
from pathlib import Path

import pytest
from support.processes import execute

pytestmark = pytest.mark.slow

PERF = Path(__file__).resolve().parents[2] / "benchmark" / "perf" / "trainer_vs_torch.py"
SMALL = "--no-compile --blocks 1 --steps 1 --layers 2 --width 64 --heads 4 --length 32 --vocabulary 512 --micro 2"


@pytest.mark.parametrize("family", ["gpt", "t5", "bert"])
def test_plain_torch_finds_the_same_losses(family: str) -> None:
    words = f"--family {family} {SMALL} --at-least 0 --json"
    answer = execute(sys.executable, str(PERF), *words.split(), timeout=90)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["ratios"]["eager"]["median"] > 0
