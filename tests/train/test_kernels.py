"""Kernels: chosen by what is there, refused by name, switched off by the build's record, and equal with every switch."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.forked import LEAST, MOCK, Train
from support.processes import execute

from nlp_bench.build import providers
from nlp_bench.build.verify import KERNELS
from nlp_bench.errors import UsageError


def python(code: str, **environment: str) -> Any:
    """Run code in a process of its own: megatron-core is prepared for the CPU before it is imported."""
    import os

    start = "from nlp_bench.train import cpu; cpu.install()\n"
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return execute(sys.executable, "-W", "ignore", "-c", start + code, timeout=120, env=variables)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def package(site: Path, name: str) -> Path:
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").touch()
    return site / name


def test_what_is_not_installed_is_refused_with_its_remedy() -> None:
    with pytest.raises(UsageError, match=r"kernels: te asked for, but Transformer Engine is not installed; .*--te`"):
        providers.check_installed("te", eight_bit=False)
    with pytest.raises(UsageError, match=r"kernels: apex asked for, but Apex is not installed; .*--apex SOURCE`"):
        providers.check_installed("apex", eight_bit=False)
    with pytest.raises(UsageError, match="fp8_format: 8-bit floats need Transformer Engine"):
        providers.check_installed("auto", eight_bit=True)
    providers.check_installed("auto", eight_bit=False)


def test_the_apex_of_pypi_is_told_from_nvidias(site: Path) -> None:
    package(site, "apex")
    with pytest.raises(UsageError, match="the installed package `apex` is not NVIDIA's"):
        providers.check_installed("apex", eight_bit=False)


def test_apex_without_its_extensions_is_refused_by_their_names(site: Path) -> None:
    package(site, "apex")
    package(site, "apex/optimizers").joinpath("fused_adam.py").touch()
    package(site, "amp_C")
    with pytest.raises(UsageError, match="without its extension fused_layer_norm_cuda, fused_weight_gradient_mlp"):
        providers.check_installed("apex", eight_bit=False)
    for name in providers.APEX_EXTENSIONS[1:]:
        package(site, name)
    providers.check_installed("apex", eight_bit=False)


WORDS = f"{LEAST} {MOCK}".split()
CASES = f"""
import json, os, sys, torch
import nlp_bench.train.loop
torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))]).step()
heavy = sorted({{'wandb', 'torch._dynamo', 'torch._inductor'}} & set(sys.modules))
from nlp_bench.errors import UsageError
from nlp_bench.train.arguments import parse
from nlp_bench.train.kernels.choice import choose_kernels, native, te

def said(work):
    try:
        return work()
    except UsageError as error:
        return str(error)

def chosen(*more):
    settings = parse({WORDS!r} + list(more))
    kernels = choose_kernels(settings, cpu.CPU)
    return dict(kernels.describe(), accumulates=kernels.accumulate_in_gemm)

def eight_bit(capability, recipe):
    torch.cuda.get_device_capability = lambda *_: capability
    torch.cuda.get_device_name = lambda *_: 'THE GPU'
    words = ['--bf16', '--fp8-format', 'hybrid', '--fp8-recipe', recipe]
    return te.check_eight_bit(parse({WORDS!r} + words), 'te', torch.device('cuda'))

from megatron.core.optimizer import distrib_optimizer
distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_TE_OPTIMIZER = True  # as where one is installed
found = dict(heavy=heavy, plain=chosen(), te=said(lambda: chosen('--kernels', 'te')))
found['attention'] = [native.preferred_attention(gpu, frozenset()) for gpu in ((8, 0), (9, 0), (10, 0), (12, 0))]
found['attention is wrong'] = native.preferred_attention((9, 0), frozenset(['attention']))
found['eight bit'] = [said(lambda: eight_bit(*case)) for case in (((8, 0), 'delayed'), ((9, 0), 'mxfp8'), ((9, 0), 'blockwise'))]
os.environ['NLP_BENCH_BUILD_RECORD'] = path = os.environ['RECORD']
found['step counts'] = [distrib_optimizer.HAVE_APEX_OR_TE, distrib_optimizer.USING_TE_OPTIMIZER]
found['off'] = chosen()
open(path, 'w').write('torn')
found['torn'] = said(chosen)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_kernels_are_chosen_by_the_device_and_the_record_of_the_build(tmp_path: Path) -> None:
    """All in one process, of which importing torch is most."""
    wrong = {"provider": "torch", "kernel": "weight gradient", "difference": 1.0, "passed": False, "error": None}
    record = tmp_path / "build.json"
    record.write_text(json.dumps({"verified": [wrong]}))
    answer = python(CASES, RECORD=str(record))
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    plain, off = found["plain"], found["off"]
    assert plain["kernels"] == "torch (asked: auto; no GPU)"
    assert plain["weight gradient"].startswith("added to their sum by the matrix product itself")
    said = "kernels: te asked for, but Transformer Engine needs a GPU and torch sees none; use --kernels torch"
    assert found["te"] == said
    assert found["heavy"] == []  # seconds of processor time in each rank
    assert (plain["accumulates"], off["accumulates"]) == (True, False)
    assert off["weight gradient"] == "made, then added by an operator of its own"
    assert found["torn"].startswith(f"environment: NLP_BENCH_BUILD_RECORD={record} cannot be read")
    assert found["step counts"] == [False, False]  # of torch's Adam, where another one is installed
    assert [kinds[0] for kinds in found["attention"]] == ["flash", "cuDNN", "cuDNN", "flash"]  # as torch itself does
    assert found["attention is wrong"] == ["flash"]
    first, second, third = found["eight bit"]
    assert first.endswith("needs compute capability 8.9 and THE GPU has 8.0; leave --fp8-format out")
    assert second.endswith("needs compute capability 10.0 and THE GPU has 9.0; use --fp8-recipe delayed")
    assert third is None


@pytest.mark.torchrun
def test_switches_change_no_loss(same_training: Train) -> None:
    off = (
        "--no-bias-gelu-fusion --no-bias-dropout-fusion --no-rope-fusion --no-cross-entropy-loss-fusion "
        "--no-gradient-accumulation-fusion --kernels torch"
    )
    other = same_training(1, MOCK, off)
    assert " > cross entropy: megatron-core, not fused\n" in other.stdout
    assert " > kernels: torch (asked: torch)\n" in other.stdout


@pytest.mark.torchrun
@pytest.mark.parametrize("precision", ["--bf16", "--fp16 --initial-loss-scale 4096"])
def test_gradients_in_the_training_s_precision_change_the_losses_by_rounding_only(train: Train, precision: str) -> None:
    words = f"{MOCK} {precision} --num-layers 2 --seq-length 16 --use-distributed-optimizer"
    wide, narrow = train(2, words), train(2, f"{words} --no-accumulate-allreduce-grads-in-fp32")
    assert (wide.code, narrow.code) == (0, 0), narrow.stderr
    assert narrow.numbers("lm loss") == pytest.approx(wide.numbers("lm loss"), rel=5e-3)
    assert narrow.numbers("grad norm") != wide.numbers("grad norm")
    # By the fourth step the two ways are 5.4 % apart where the processor has AMX, within 5 % where it has not.
    assert narrow.numbers("grad norm") == pytest.approx(wide.numbers("grad norm"), rel=1e-1)
    assert " > weight gradient: added to their sum by the matrix product itself (torch.addmm_)\n" in narrow.stdout


@pytest.mark.slow
def test_the_gpu_script_runs_the_same_way_on_a_cpu(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "benchmark" / "perf" / "gpu_training.py"
    command = [sys.executable, str(script), "--smoke", "--models", "Llama", "--output", str(tmp_path)]
    answer = execute(*command, timeout=180)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    ended = [(run["engine"], run["error"], run["num_measured"]) for run in record["runs"]]
    assert ended == [("nlp-bench", None, 8), ("plain", None, 8)]
    assert "CPU SMOKE TEST, no measurement" in path.with_suffix(".md").read_text()


TRIALS = """
import torch
from nlp_bench.build.verify import KERNELS
from nlp_bench.train.kernels import trial
trial.DTYPE = trial._random.__kwdefaults__['dtype'] = torch.bfloat16  # as on a GPU
trial.main('torch', *KERNELS['torch'])
adamw = torch.optim.AdamW
trial.choice.adam_of = lambda _: (lambda *words, lr, **more: adamw(*words, lr=1.01 * lr, **more), False)
trial.main('torch', 'adamw')
"""


@pytest.mark.slow
def test_float32_results_are_compared_closely_beside_16_bit_ones() -> None:
    """A GPU's were compared as its 16-bit ones: an AdamW with a learning rate 1 % too large passed."""
    lines = [json.loads(line) for line in python(TRIALS).stdout.splitlines()]
    *right, wrong = [line for line in lines if "starts" not in line]
    assert {line["kernel"]: line["passed"] for line in right} == dict.fromkeys(KERNELS["torch"], True)
    assert (wrong["passed"], wrong["difference"]) == (False, pytest.approx(0.01, rel=0.01))
