from dataclasses import replace

from nlp_bench.train.logline import Interval, format_line

INTERVAL = Interval(
    iteration=10, train_iters=3125000, consumed_samples=960, elapsed_s=7.2310, learning_rate=4.438e-7, global_batch_size=96,
    loss=10.10967, loss_scale=4096.0, grad_norm=178.553, num_skipped=0, num_nan=0, legacy_flops=101.54 * 7.2310 * 384 * 1e12,
    model_flops=75.0 * 7.2310 * 384 * 1e12, sequence_length=2048, num_gpus=384, peak_bytes=3 * 2**29, unix_time_s=1763639999.1234,
)  # fmt: skip
# Up to "TFLOPs: 101.54 |" this is, letter by letter, a line of the published log of the 175B benchmark.
GOLDEN = (
    " iteration       10/ 3125000 | consumed samples:          960 | elapsed time per iteration (s): 7.2310 |"
    " learning rate: 4.438E-07 | global batch size:    96 | lm loss: 1.010967E+01 | loss scale: 4096.0 |"
    " grad norm: 178.553 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    " samples per second: 13.276 | TFLOPs: 101.54 |"
    " model TFLOP/s/GPU: 75.00 | tokens per second: 27189.6 | peak memory GiB: 1.50 | unix time: 1763639999.123 |"
)


def test_the_line_has_the_known_shape() -> None:
    assert format_line(INTERVAL) == GOLDEN


def test_an_interval_without_an_update_has_no_loss() -> None:
    line = format_line(replace(INTERVAL, loss=None, grad_norm=None, num_skipped=10))
    assert "lm loss" not in line
    assert "grad norm" not in line
    assert "number of skipped iterations:  10 |" in line


def test_a_loss_that_is_not_a_number_is_printed_so() -> None:
    assert "| lm loss: NAN |" in format_line(replace(INTERVAL, loss=float("nan"), num_nan=1))
