"""The numbers of an interval under the tags that Megatron-LM gives them.

Source: NVIDIA/Megatron-LM megatron/training/training.py, training_log; `tokens-per-second` is ours, and `throughput` counts
model FLOPs as the log line's `model TFLOP/s/GPU` does.
"""

from nlp_bench.train.logline import Interval, tera_per_gpu
from nlp_bench.train.watching.watcher import Scalars

VS_SAMPLES = ("lm loss", "learning-rate", "batch-size", "loss-scale", "grad-norm")
"""Tags that are drawn over the samples as well, as `lm loss vs samples`."""


def scalars_of(interval: Interval) -> Scalars:
    """Return what the log line says; loss and gradient norm only where there are any."""
    rate = interval.global_batch_size * interval.sequence_length / interval.elapsed_s
    known = {
        "lm loss": interval.loss,
        "learning-rate": interval.learning_rate,
        "batch-size": float(interval.global_batch_size),
        "loss-scale": interval.loss_scale,
        "grad-norm": interval.grad_norm,
        "iteration-time": interval.elapsed_s,
        "throughput": tera_per_gpu(interval.model_flops, interval),
        "tokens-per-second": rate,
        "mem-max-allocated-bytes": float(interval.peak_bytes),
    }
    return {tag: value for tag, value in known.items() if value is not None}
