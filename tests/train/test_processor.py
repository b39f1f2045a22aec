"""The CPU's own operators against torch's: values and gradients."""

import json
import sys

import pytest
from support.processes import execute

pytestmark = pytest.mark.slow

CASES = """
import json, types
from nlp_bench.train import cpu
cpu.install()
import torch
from torch.nn import functional as F
from nlp_bench.train.kernels.processor import Gate, loss_in_place

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


def test_each_agrees_with_torch() -> None:
    answer = execute(sys.executable, "-W", "ignore", "-c", CASES, timeout=90)
    assert answer.returncode == 0, answer.stderr
    differences = json.loads(answer.stdout)
    assert set(differences) == {"gelu", "silu", "loss, logits times 1.0", "loss, logits times 100.0"}
    assert all(value < 3e-5 for pair in differences.values() for value in pair), differences
