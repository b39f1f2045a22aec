"""Logs that state what their rates count: no option makes a number of something else, and what the log counts is used."""

from pathlib import Path

import pytest
from support.texts import entries_of

AXOLOTL = "".join(
    f"{{'loss': '1.{n}', 'tokens/train_per_sec_per_gpu': '40{n}', 'tokens/total': '{n}000000', 'epoch': '0.0{n}'}}\n"
    for n in range(1, 6)
)
RUNTIME = (
    "{'train_runtime': '100', 'train_samples_per_second': '12.2', 'train_steps_per_second': '0.05', 'epoch': '0.05'}\n"
)
SUMMARY = (
    "***** train metrics *****\n  epoch                    =        3.0\n  num_input_tokens_seen    =     600000\n"
    "  train_runtime            = 0:00:40.00\n  train_samples_per_second =       30.0\n  train_steps_per_second   =       0.25\n"
)
NANOCHAT = "Tokens / micro-batch / rank: 16 x 2048 = 32,768\nTokens / micro-batch: 65,536\n" + (
    "Total batch size 262,144 => gradient accumulation steps: 4\n"
    + "".join(
        f"step {n:05d}/00010 (1.00%) | loss: 8.1 | lrm: 1.00 | dt: 1000.00ms | tok/sec: 65,536 | mfu: 1.00\n"
        for n in range(10)
    )
)
VIDEO = "".join(
    f"completed step: {n}, seconds: 10.0{n}0, Tokens/s/device: 7000.000, Frames/s/device: 8.500, loss: 1.5\n"
    for n in range(5, 9)
)
TORCHTUNE = "".join(f"Step {n} | loss:1.{n} lr:2e-05 tokens_per_second_per_gpu:200{n % 3}\n" for n in range(1, 9))
BARE = "".join(f"{500 * n}/6000 train_loss: 3.4 train_time: {40 * n}s tok/s: 6553600\n" for n in range(1, 13))
SIZES = "a=relu train_batch_tokens=524288 train_seq_len=1024 world_size=8 lr=1\n"
SHORT = "".join(f"step:{n}00/900 loss:3.4 t:{9000 * n + 500}ms avg:90.1ms\n" for n in range(1, 10))

CASES: dict[str, tuple[str, dict[str, int], float | None]] = {
    "counter": (AXOLOTL + RUNTIME, {}, 50_000),
    "counter_with_gpus": (AXOLOTL + RUNTIME, {"num_gpus": 8}, 50_000),
    "micro_batch_of_a_gpu": (AXOLOTL.replace("tokens/total", "x"), {"num_gpus": 8}, None),
    "summary": (SUMMARY, {}, 15_000),
    "summary_against_option": (SUMMARY, {"sequence_length": 2048}, 15_000),
    "micro_batch": (NANOCHAT, {}, 262_144),
    "patches_of_video": (VIDEO, {"num_gpus": 8}, None),
    "bare_steps": (SIZES + BARE, {}, 6_553_600),
    "bare_steps_in_brackets": (SIZES + BARE.replace("/6000", "/6000]").replace("\n", "\n[", 11), {}, 6_553_600),
    "bare_steps_without_sizes": (BARE, {}, 6_553_600),
    "values_without_colon": (SIZES + BARE.replace(":", ""), {}, 6_553_600),
    "short_names": (SIZES + SHORT, {}, 524288 / 0.09),
    "train_runtime_alone": ("".join(f"{{'loss': 2.5, 'train_runtime': {n}0.0}}\n" for n in range(1, 9)), {}, None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_number_is_that_of_the_training_or_none(tmp_path: Path, name: str) -> None:
    text, options, expected = CASES[name]
    (entry,) = entries_of(tmp_path, text, **options)
    assert entry.steady == (expected and pytest.approx(expected, rel=2e-3)), entry.reason_texts
    if expected is None:
        assert "(give --" not in entry.reason_texts[0]


def test_a_rate_of_tokens_with_a_label_proves_nothing(tmp_path: Path) -> None:
    (entry,) = entries_of(tmp_path, TORCHTUNE, num_gpus=8)
    assert (entry.outcome.value, bool(entry.doubts)) == ("MEASURED", True)


def test_a_dict_at_half_an_epoch_is_no_first_iteration(tmp_path: Path) -> None:
    text = "{'loss': 2.5, 'epoch': 0.5, 'num_input_tokens_seen': 8000, 'train_runtime': 10.0, 'train_tokens_per_second': 800.0}\n"
    (entry,) = entries_of(tmp_path, text)
    assert (entry.steady, entry.reasons[0].code) == (None, "only-warm-up")
    assert "first iteration" not in entry.reasons[0].text
