"""Halves of two lines that look like one, each found among mutated logs: no rate comes from them.

A case is a fixture, what is done to its log, and the rates (with the fixture's first options that give a number) that are left.
"""

import re
from pathlib import Path

import pytest
from support.fixtures import fixtures
from support.texts import entries_of

from nlp_bench.logs.dialect import FAILED

KNOWN = dict(fixtures())
NOISE = "2026-01-01 10:00:00,000 [WARNING] something that takes 12.5 s and 1,024 words"
CASES = {
    "a number that a terminal has cut, and another rank behind it": (
        "torchtitan_wrapped", r"(?s)\A.*(?=\[rank0\]:\[titan\] 2026-01-01 10:00:20)(.*?\n)(.*?\n).*", r"\1[rank7]: UserWarning\n\2", (),
    ),
    "a cut line alone": ("torchtitan_wrapped", r"(?s)\A.*?([^\n]*step: 30[^\n]*\n).*", r"\1", ()),
    "a bar of another loop beside a torn one of the training": (
        "tqdm", r"(10/100 \[01:40<03:20, 4.00s/it, loss)", rf"\1{NOISE}\n", (1024.0,),
    ),
    "an evaluation whose name is torn": ("t5x", "collection=infer_eval", "collecton=infer_eval", (16384.0,)),
    "an evaluation whose name is lost": ("t5x", "collection=infer_eval/c4 ", "", (16384.0,)),
    "a name within a value of a bar": ("nemo1_bar_of_batches", r"(132/.*v_num=), .*\n.*reduced_train(_loss=)", r"\1\2", (13107.2,)),
    "names of the next bar": (
        "nemo1_bar_of_batches", r"(132/.*reduced_train_los)s=.*\n.*reduced_trai(n_loss=)", r"\1\2", (13107.2,),
    ),
    "another line's date behind a rate": ("unknown_device", r"(iter=20.*=4000)", rf"\1{NOISE}\n", (64000.0,)),
    "another line's date in place of a rate": ("hf_trainer_output", "8.0, ", f"{NOISE}\n8.0, ", ()),
    "another line's time in front of a step": ("deepspeed_stamps", r"\[2026-01-01 10:01:30,000\] \[INFO\] \[log", f"{NOISE[:34]}", (16384.0,)),
    "the step of the next line behind a time stamp": (
        "deepspeed_stamps", r"(10:01:50,000\] \[INFO\] \[lo)[^\n]*\n[^\n]*\[IN", r"\1", (9362.3,),
    ),
    "a bar of another program within a dict, and no summary": (
        "hf_trainer_trl_summary", r"(?s)('epoch': 0\.50\}\n[^\n]*'grad_norm': 1\.5, )(.*train_steps_per_).*", r"\1\r 10%|#         | 10/100 [00:10<01:30]\2", (),
    ),
    "a rate of an evaluation": ("cerebras", r"(Step=200, Lo)ss=9\.4.*\n.*GlobalSt(ep=200, Batch)", r"\1\2", (81920.0,)),
    "a comment of another field": (
        "modded_nanogpt", r"across all devices\n.*\n    sequence_len(gth : int = 1024 #)", r"across all de\1", (),
    ),
    "a key that stands twice": (
        "llamafactory_jsonl", r'(163840\}\n\{"current_steps": 20.*"throughput": 1000.0, )"total.*\n.*"remaining(_time)', r'\1"\2', (4096.0,),
    ),
    "the start of an evaluation is lost": (
        "mlperf_llama31_block_clock", r'(?s)(1700000090000.*?"eval_start", "value": null, "metadata": \{").*?(\n.*?"samples_count": 288.*?\n).*', r"\1\2", (),
    ),
    "a whole block is lost": (
        "mlperf_gpt3_block_clock", r'(1700000130)(000.*"block_start".*\n.*1700000170000.*"block_stop".*)"first_epoch_num": 20480\}\}\n', r"\1\n\2\n", (256.0,),
    ),
    "what says of whom the rate is": ("fairseq_xla", r"001 \| training on xla:0/2:     40 / 4830 loss=9.5, nll_loss=9.5, pp", "", (8000.0,)),
    "two clocks in one log": (
        "fairseq_running_means", r"(?s)num_updates=2001, lr=0.0002, gnorm=0.500, clip=0.000, oom(=0.000, wall=5100[^\n]*\n).*", r"num_upda\1", (16384.0,),
    ),
    "the end of a step is lost": ("litgpt_2023", r"(?s) \(optimizer.step\)( remaining time: 30.*3 step 2[^\n]*\n).*", r" \1", ()),
    "a count of an evaluation": ("xtuner", r"\[  20/1000\](  lr: 2.0e-04  e)[^\n]*\n[^\n]*\(val\)", r"[  20/1000]\1", (32768.0,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_rate_comes_from_halves(tmp_path: Path, name: str) -> None:
    fixture, pattern, new, rates = CASES[name]
    text = KNOWN[fixture]["log"].lstrip("\n")
    options = next(
        case.get("options", {}) for case in KNOWN[fixture]["case"] if case["outcome"] in {"VALID", "MEASURED"}
    )
    changed, number = re.subn(pattern, new, text, count=1)
    assert number == 1
    entries = entries_of(tmp_path, changed, **options)
    assert not any(remark.startswith(FAILED) for entry in entries for remark in entry.remarks)
    found = [entry.steady for entry in entries if entry.steady is not None]
    assert found == [pytest.approx(rate, rel=0.01) for rate in rates]
