"""Logs that look whole and tell too fast a time, or too little: resumed trainings, padding in each step, losses beside the times."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from support.reported import Reported

SIZES = ("--sequence-length", "4096", "--global-batch-size", "256")
STEP_S = 5
TRUE_RATE = 256 * 4096 / STEP_S
HEADER = """***** Running training *****
  Total train batch size (w. parallel, distributed & accumulation) = 256
  Total optimization steps = 300
"""


def said(run: dict[str, Any]) -> str:
    return " ".join(run["reasons"])


def rates(run: dict[str, Any]) -> list[float]:
    """Steady, reference."""
    return [run["tokens_per_second"][name] for name in ("steady", "reference")]


def bar(n: int, seconds: int) -> str:
    rate = f"{seconds / n:.2f}s/it" if n and seconds else "?it/s"
    return f"\r{n * 100 // 300:3d}%|######    | {n}/300 [{seconds // 60:02d}:{seconds % 60:02d}<00:10,  {rate}]"


def step_dict(n: int) -> str:
    return f"\n{{'loss': {10 - n / 100:.4f}, 'grad_norm': 1.23, 'learning_rate': 3e-05, 'epoch': {n / 300:.2f}}}\n"


def summary(seconds: float, *, clock: bool = False) -> str:
    """All 300 steps divided by the seconds of this start, as the Trainer does."""
    time = f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}" if clock else f"{seconds}"
    return (
        f"\n***** train metrics *****\n  train_runtime            = {time}\n"
        f"  train_samples_per_second = {300 * 256 / seconds:.3f}\n  train_steps_per_second   = {300 / seconds:.3f}\n"
    )


def trained(start: int, *, has_bar: bool, first_s: int = 0, draws_zero: bool = False) -> str:
    """Steps `start` + 1 to 300 of 300, 5 s each."""
    text = bar(0, 0) if draws_zero else ""
    for n in range(start + 1, 301):
        text += bar(n, first_s + (n - start) * STEP_S) if has_bar else ""
        text += step_dict(n) if n % 10 == 0 else ""
    return text


@pytest.mark.parametrize("draws_zero", [False, True])
@pytest.mark.parametrize("start", [50, 200])
def test_a_resumed_trainer_is_timed_by_its_bar(reported: Reported, start: int, draws_zero: bool) -> None:
    text = trained(start, has_bar=True, draws_zero=draws_zero) + summary((300.0 - start) * STEP_S)
    assert rates(reported(text, *SIZES)) == pytest.approx([TRUE_RATE] * 2, rel=0.02)


@pytest.mark.parametrize(
    "text",
    [
        trained(200, has_bar=False) + summary(500.0),
        HEADER + trained(200, has_bar=False) + summary(500.0),
        trained(290, has_bar=True, draws_zero=True) + summary(50.0),
        "  Continuing training from global step 200\n" + summary(500.0),
        "  Continuing training from checkpoint, will skip to saved global_step\n" + summary(500.0),
        HEADER + "  Continuing training from checkpoint\n" + summary(500.0),
        HEADER + "  Continuing training from global step 200\n" + summary(500.0),
    ],
    ids=[
        "epochs",
        "epochs under the header of the start",
        "a brief bar",
        "no total",
        "no start",
        "neither",
        "a known step",
    ],
)
def test_the_summary_of_a_resumed_trainer_is_refused(reported: Reported, text: str) -> None:
    run = reported(text, *SIZES)
    assert (run["outcome"], rates(run)[0]) == ("REFUSED", None)
    assert "was resumed, or whose log lacks its beginning or has another training before it" in said(run)


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        (summary(1500.0), True),
        (HEADER + summary(1500.0), False),
        (trained(0, has_bar=True, draws_zero=True) + summary(1500.0), False),
        (trained(0, has_bar=True, first_s=60) + summary(1500.0), False),
        (trained(0, has_bar=False) + summary(1500.0), False),
    ],
    ids=["nothing else", "header", "bar", "a slow start", "dicts"],
)
def test_the_summary_of_a_trainer_from_the_beginning_stays(reported: Reported, text: str, is_told: bool) -> None:
    run = reported(text, *SIZES)
    assert run["tokens_per_second"]["steady"] == pytest.approx(TRUE_RATE, rel=1e-3)
    assert ("nothing shows that the Trainer began at step 0" in said(run)) is is_told
    assert run["window"]["last_iteration"] == 300


@pytest.mark.parametrize(
    ("has_header", "has_bar", "words"),
    [(True, False, "stopped early"), (False, False, "did all planned steps"), (True, True, ""), (False, True, "")],
)
def test_the_summary_of_a_trainer_that_stopped_early_is_no_time(
    reported: Reported, has_header: bool, has_bar: bool, words: str
) -> None:
    """The Trainer divides all 300 planned steps by the time of the 90 that an EarlyStoppingCallback let it do."""
    header = HEADER.replace("\n", "\n  Num examples = 76,800\n", 1) if has_header else ""
    done = trained(0, has_bar=has_bar).partition(bar(91, 91 * STEP_S) if has_bar else step_dict(100))[0]
    end = f"\n{{'train_runtime': 450.0, 'train_samples_per_second': {300 * 256 / 450:.3f}, 'epoch': 0.3}}\n"
    run = reported(header + done + end, *SIZES)
    assert words in said(run)
    if has_bar:
        assert run["tokens_per_second"]["steady"] == pytest.approx(TRUE_RATE, rel=0.02)
    assert run["outcome"] != "VALID" or has_bar


def test_the_batch_of_a_start_that_came_to_no_step_does_not_count(reported: Reported) -> None:
    """`auto_find_batch_size`: out of memory with 512, then 256."""
    text = HEADER.replace("256", "512") + bar(0, 0) + "\n" + HEADER + trained(0, has_bar=True) + summary(1500.0)
    run = reported(text, "--sequence-length", "4096")
    assert run["tokens_per_second"]["steady"] == pytest.approx(TRUE_RATE, rel=0.02)
    assert run["outcome"] == "VALID"


def nemo_bar(n: int, step_s: float) -> str:
    at = 9 + n * STEP_S
    return (
        f"Epoch 0:   0%|          | {n}/9000 [{at // 60:02d}:{at % 60:02d}<11:00:00, v_num=, reduced_train_loss={9 - n / 100:.3f}, "
        f"global_step={n - 1}.0, consumed_samples={n * 256}.0, train_step_timing in s={step_s:.3f}]\r"
    )


@pytest.mark.parametrize(("step_s", "by_bar"), [(4.0, True), (4.95, False)])
def test_steps_that_leave_the_loading_of_data_out_are_timed_by_the_bar(
    reported: Reported, step_s: float, by_bar: bool
) -> None:
    text = "".join(nemo_bar(n, step_s) for n in range(1, 101)) + "\n"
    run = reported(text, "--sequence-length", "4096")
    assert run["tokens_per_second"]["steady"] == pytest.approx(TRUE_RATE * (1 if by_bar else 5 / step_s), rel=1e-3)
    assert ("timed by the bar" in said(run)) is by_bar


def test_the_rate_of_a_device_is_not_used_and_its_losses_are(reported: Reported) -> None:
    """Axolotl's rate counts the trained tokens of one micro-batch: here half of what the summary means."""
    rate = f"'tokens_per_second_per_gpu': {TRUE_RATE / 16:.2f}, 'epoch'"
    text = HEADER + trained(0, has_bar=False).replace("'epoch'", rate) + summary(1500.0)
    run = reported(text, "--num-gpus", "8", "--sequence-length", "4096")
    assert run["tokens_per_second"]["steady"] == pytest.approx(TRUE_RATE, rel=2e-3)
    assert (run["outcome"], "no loss" in said(run)) == ("VALID", False)


def swift_dict(n: int, seconds: int) -> str:
    return (
        f"{{'loss': {10 - n / 100:.4f}, 'token_acc': 0.6, 'grad_norm': 1.1, 'learning_rate': 0.0001, 'memory(GiB)': 20.5, "
        f"'train_speed(iter/s)': {n / seconds:.6f}, 'epoch': {n / 300:.2f}, 'global_step/max_steps': '{n}/300', "
        f"'percentage': '{n / 3:.2f}%', 'elapsed_time': '{seconds // 60}m {seconds % 60}s', 'remaining_time': '10m 2s'}}\n"
    )


def tokens_dict(n: int, seconds: int) -> str:
    return (
        f"{{'loss': {10 - n / 100:.4f}, 'epoch': {n / 300:.2f}, 'num_input_tokens_seen': {n * 256 * 4096}, "
        f"'train_runtime': {seconds}.0}}\n"
    )


def test_the_dicts_of_a_whole_training_number_its_steps(reported: Reported) -> None:
    text = HEADER + "".join(tokens_dict(n, n * STEP_S) for n in range(10, 301, 10)) + summary(1500.0)
    run = reported(text, *SIZES)
    assert run["tokens_per_second"]["steady"] == pytest.approx(TRUE_RATE, rel=1e-3)
    assert run["window"]["last_iteration"] == 300
    assert "the options give" not in said(run)


@pytest.mark.parametrize("a_dict", [swift_dict, tokens_dict])
@pytest.mark.parametrize(("start", "num_records"), [(200, 9), (0, 30)], ids=["resumed", "from the beginning"])
def test_the_first_dict_of_a_resumed_training_has_no_time(
    reported: Reported, a_dict: Callable[[int, int], str], start: int, num_records: int
) -> None:
    text = "".join(a_dict(n, (n - start) * STEP_S) for n in range(start + 10, 301, 10))
    run = reported(text, *SIZES)
    assert rates(run) == pytest.approx([TRUE_RATE] * 2, rel=1e-3)
    whole = next(row for row in run["sensitivity"] if row["window"] == "the mean of all lines")
    assert whole["num_records"] == num_records


@pytest.mark.parametrize("a_dict", [swift_dict, tokens_dict])
def test_a_log_to_which_a_resumed_training_appends_counts_both_parts(
    reported: Reported, a_dict: Callable[[int, int], str]
) -> None:
    # LLaMA-Factory's trainer_log.jsonl: the clock begins anew.
    starts = {n: 0 if n <= 150 else 145 for n in range(10, 301, 10)}
    run = reported("".join(a_dict(n, (n - begun) * STEP_S) for n, begun in starts.items()), *SIZES)
    assert [*rates(run), run["sustained"]["tokens_per_second"]] == pytest.approx([TRUE_RATE] * 3, rel=1e-3)


def test_a_bar_that_is_full_does_not_stop_before_its_end(reported: Reported) -> None:
    run = reported("".join(bar(n, 7 + n * STEP_S) for n in range(1, 301)) + "\n", *SIZES)
    assert run["tokens_per_second"]["steady"] == pytest.approx(TRUE_RATE, rel=1e-3)
    assert run["window"]["last_iteration"] == 300
    assert "the log stops" not in said(run)


def test_a_first_dict_at_step_1_counts(reported: Reported) -> None:
    text = "".join(swift_dict(n, 15 + n * STEP_S) for n in (1, *range(10, 101, 10)))
    # The start-up of 15 s costs 15 s of the 100 steps.
    with_start_up = TRUE_RATE * 100 * STEP_S / (15 + 100 * STEP_S)
    assert rates(reported(text, *SIZES)) == pytest.approx([TRUE_RATE, with_start_up], rel=1e-4)


@pytest.mark.parametrize(("weights", "is_told"), [(943718, True), (256 * 4096, False)], ids=["padded", "full"])
def test_padding_that_is_the_same_in_each_step_is_told(reported: Reported, weights: int, is_told: bool) -> None:
    text = "Num_devices: 64, shape (1, 1, 64, 1)\nConfig param global_batch_size_to_train_on: 256\n"
    text += "Config param max_target_length: 4096\n"
    text += "".join(
        f"completed step: {n}, seconds: 5.000, TFLOP/s/device: 180.000, Tokens/s/device: 3276.800, total_weights: {weights}, "
        f"loss: {10 - n / 100:.3f}\n"
        for n in range(50)
    )
    run = reported(text, "--num-gpus", "64")
    assert run["tokens_per_second"]["steady"] == pytest.approx(TRUE_RATE, rel=1e-3)
    assert ("count padding" in said(run)) is is_told


def olmo_step(n: int, num_devices: int = 64) -> str:
    stamp = f"2026-01-01 1{n * STEP_S // 3600}:{n * STEP_S // 60 % 60:02d}:{n * STEP_S % 60:02d}.000"
    return (
        f"{stamp}\thost:0\tolmo_core.train:512\tINFO\t[step={n}/300,epoch=1,eta=1:23:45]\n    train/CE loss={10 - n / 100:.3f}\n"
        f"    throughput/device/TPS={TRUE_RATE / num_devices:,.0f}\n    throughput/total tokens={n * 256 * 4096:,}\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "".join(swift_dict(n, n * STEP_S) for n in range(10, 301, 10)),
        HEADER + trained(0, has_bar=False) + summary(1500.0),
        "".join(olmo_step(n) for n in range(1, 301)),
    ],
    ids=["ms-swift", "the Trainer's summary", "OLMo-core"],
)
def test_the_losses_of_a_whole_training_are_read(reported: Reported, text: str) -> None:
    """Only a finite loss shows that a training was one: a run without is MEASURED at best."""
    options = (*SIZES, "--num-gpus", "64")
    assert reported(text, *options)["outcome"] == "VALID"
    diverged = re.sub(r"('loss': |CE loss=)[\d.]+", r"\1nan", text)
    assert reported(diverged, *options)["outcome"] in {"INVALID", "REFUSED"}
