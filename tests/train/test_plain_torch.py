"""Our trainer against an independent one: the plain PyTorch loop of benchmark/perf trains the same model."""

import json
import subprocess
import sys
from pathlib import Path

PERF = Path(__file__).resolve().parents[2] / "benchmark" / "perf" / "trainer_vs_torch.py"


def test_plain_torch_finds_the_same_losses() -> None:
    small = "--blocks 1 --steps 1 --layers 2 --width 64 --heads 4 --length 32 --vocabulary 512 --micro 2 --at-least 0 --json"
    answer = subprocess.run(
        [sys.executable, str(PERF), *small.split()], capture_output=True, text=True, check=False, timeout=90
    )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["ratio"] > 0
