"""The fields of Megatron-LM's line in all programs that kept it: the quantity of each name, and the program if only one prints it.

Sources: NVIDIA/Megatron-LM megatron/training/training.py (`training_log`) and its forks, the sources in `megatron.DIALECTS`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from nlp_bench.logs.pattern import late
from nlp_bench.logs.quantity import in_unit
from nlp_bench.logs.scan import Grammar


def _by_key(keys: Mapping[str, str]) -> Mapping[bytes, str]:
    return {key.encode(): name for name, alike in keys.items() for key in alike.split(" | ")}


# The unit of the time is in the name of the field: ignoring it is an error by a factor of 1000.
CLEAN = _by_key(
    {
        "consumed_samples": "consumed samples",
        "consumed_tokens": "consumed tokens",
        "elapsed_s": "elapsed time per iteration (s)",
        "elapsed_ms": "elapsed time per iteration (ms)",
        "global_batch_size": "global batch size",
        "lm_loss": "lm loss | lm-loss | loss",
        "learning_rate": "learning rate",
        "grad_norm": "grad norm",
        "sequence_length": "actual seqlen | actual seq length",
        "num_skipped": "number of skipped iterations",
        "num_nan": "number of nan iterations",
        "samples_per_second": "samples per second",
        "tokens_per_second": "tokens per second",
        "tokens_per_second_per_device": "tokens per gpu per second (tgs) | tokens/sec/gpu | throughput (token/sec/GPU) | TGS",
        "samples_per_second_per_device": "throughput (samples/sec/per_device)",
        "tflops": "TFLOPs",
        "model_tflops": "throughput per GPU (TFLOP/s/GPU) | model TFLOP/s/GPU",
        "stamp_s": "unix time",
        "joules_per_device": "energy per GPU (J/iter/GPU)",
        "watts_per_device": "power per GPU (W/GPU)",
    }
)
"""Fields that the scanner reads, too, as they are printed, to the quantity."""
CAREFUL = _by_key(
    {
        "global_batch_size": "gloabl batch size",
        "tokens_per_second_per_device": "tokens per GPU (tokens/s/GPU) | tokens/s/GPU inst/harmonic mean | tokens/s/gpu"
        " | tokens_per_gpu_per_second_tgs",
        "model_tflops": "compute per GPU (TFLOP/s/GPU) | TFLOP/s/GPU | [LM]TFLOPs",
        "tflops": "[DS]TFLOPs",
        "lm_loss": "lm_loss",
        "elapsed_ms": "elapsed_time_per_iteration_ms",
        "": "curriculum seqlen | random ltd reserved length | approx flops per GPU | hip mem usage/free/total/usage_ratio",
    }
)
"""Fields that make a line no row of the scanner: they name the program, hold two numbers, or change what others mean."""
PROGRAM: Mapping[bytes, str] = {
    b"approx flops per GPU": "gpt-neox",
    b"gloabl batch size": "modellink",
    **dict.fromkeys((b"tokens per GPU (tokens/s/GPU)", b"tokens/s/GPU inst/harmonic mean"), "primus"),
    **dict.fromkeys((b"compute per GPU (TFLOP/s/GPU)", b"hip mem usage/free/total/usage_ratio"), "primus"),
    **dict.fromkeys((b"curriculum seqlen", b"lm-loss", b"tokens_per_gpu_per_second_tgs"), "megatron-deepspeed"),
}
"""Field to the only program that prints it."""
COUNTS = {"consumed_samples", "consumed_tokens", "global_batch_size", "num_skipped", "num_nan", "sequence_length"}
NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"

_BLANKS = bytes.maketrans(b"", b"")
_WHOLE = late(rb"\d{1,18}")
_PLAIN = re.compile(NUMBER + rb"|[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
# The current value and a running mean of it: `1460.8/1450.4`, `615.5 (avg 612.0)`.
_CURRENT = late(rb"(" + NUMBER + rb")(?:/ ?" + NUMBER + rb"| \(avg " + NUMBER + rb"\))")
_ROUNDED = late(rb"\d+(?:\.\d+)?[KMBT]")


def normal(key: bytes) -> bytes:
    """Return the key for comparison, without the blanks and `_` between its words, which a wrapped line may have moved."""
    return key.translate(_BLANKS, b" \t_").lower()


TWO_NUMBERS = {"elapsed_ms", "model_tflops", "tokens_per_second_per_device"}
"""Fields in which Primus prints the current value and a mean; the current one counts."""


class Field(NamedTuple):
    """What a key means."""

    name: str  # quantity, maybe with another unit; "" for one that is not read
    quantity: str
    program: str  # the only program that prints it, "" for several
    hides_length: bool  # whether the sequence length of the line is only that of its last iteration


_FIELDS = {normal(key): (name, PROGRAM.get(key, "")) for key, name in (*CLEAN.items(), *CAREFUL.items())}
_HIDING = {normal(b"curriculum seqlen"), normal(b"random ltd reserved length")}


@lru_cache(maxsize=1024)
def field_of(key: bytes) -> Field:
    """Return the meaning of a key, wherever a line break has split it."""
    name, program = _FIELDS.get(normal(key), ("", ""))
    return Field(name, in_unit(name, 1.0)[0], program, normal(key) in _HIDING)


def value_of(field: Field, text: bytes) -> float | None:
    """Return the number of a field in its quantity's unit, None when it is none.

    Strict: no thousands commas, no suffix; no program prints them here, so they show a splice.
    """
    text = text.strip()
    if field.quantity in COUNTS:
        return float(text) if _WHOLE.fullmatch(text) else None
    pair = _CURRENT.fullmatch(text) if field.name in TWO_NUMBERS else None
    if not (pair or _PLAIN.fullmatch(text)):
        return None
    return in_unit(field.name, float(pair[1] if pair else text))[1]


def is_rounded(text: bytes) -> bool:
    """Say whether a count is rounded (`1.258B`): not a torn field, but too inexact to use."""
    return bool(_ROUNDED.fullmatch(text.strip()))


def grammar() -> Grammar:
    """Return the strict form of a clean record, for the scanner."""
    keys = {}
    for key, name in CLEAN.items():
        quantity, _ = in_unit(name, 1.0)
        keys[key] = (quantity, 1000.0 if name.endswith("_ms") else 1.0, quantity in COUNTS)
    # A second field for a column makes the line no row, so that it goes to the parser.
    keys |= dict.fromkeys(CAREFUL, ("iteration", 1.0, False))
    return Grammar(start=b"iteration", keys=keys, required=("elapsed_s", "num_nan"), reads_stamps=True)
