"""Our trainer against others: Megatron-LM's own (docs/parity.md), the plain PyTorch models of benchmark/perf, torch's operators."""

import json
import os
import sys
from pathlib import Path

import pytest
from support.processes import ROOT, execute


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


PERF = ROOT / "benchmark/perf/trainer_vs_torch.py"
SMALL = "--no-compile --blocks 1 --steps 1 --layers 2 --width 64 --heads 4 --length 32 --vocabulary 512 --micro 2"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt", "t5", "bert"])
def test_plain_torch_finds_the_same_losses(family: str) -> None:
    words = f"--family {family} {SMALL} --at-least 0 --json"
    answer = execute(sys.executable, str(PERF), *words.split(), timeout=90)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["ratios"]["eager"]["median"] > 0


CASES = """
import json, types
from nlp_bench.train import cpu
cpu.install()
import torch
from torch.nn import functional as F
from nlp_bench.train.kernels.native import Gate, loss_in_place

torch.manual_seed(1)
def apart(ours, theirs, inputs, times=1.0):
    upper = torch.randn_like(theirs(inputs))
    leaves = [inputs.clone().requires_grad_() for _ in (ours, theirs)]
    results = [function(leaf * times) for function, leaf in zip((ours, theirs), leaves)]
    gradients = [torch.autograd.grad(result, leaf, upper)[0] for result, leaf in zip(results, leaves)]
    return [float((a - b).abs().max()) for a, b in (results, gradients)]

def gated(function):
    return lambda both: function(both.chunk(2, -1)[0]) * both.chunk(2, -1)[1]

target = torch.randint(50, (6, 2))
def entropy(logits):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction='none').view_as(target)

found = {f.__name__: apart(Gate(types.SimpleNamespace(activation_func=f)), gated(f), torch.randn(6, 2, 20)) for f in (F.gelu, F.silu)}
for times in (1.0, 100.0):
    found[f'loss, logits times {times}'] = apart(lambda x: loss_in_place(x, target), entropy, torch.randn(6, 2, 50), times)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_processor_s_operators_agree_with_torch() -> None:
    answer = execute(sys.executable, "-W", "ignore", "-c", CASES, timeout=90)
    assert answer.returncode == 0, answer.stderr
    differences = json.loads(answer.stdout)
    assert set(differences) == {"gelu", "silu", "loss, logits times 1.0", "loss, logits times 100.0"}
    assert all(value < 3e-5 for pair in differences.values() for value in pair), differences
