"""The four countings of floating-point operations by name, and which of them the FLOP/s are that a log prints itself."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nlp_bench.layout.flops import hardware_flops_per_token, legacy_flops_per_iteration, model_flops_per_token
from nlp_bench.measure.shape import Shaped

if TYPE_CHECKING:
    from nlp_bench.measure.entry import RunResult

COUNTS = {
    "model": "model, causal attention as half (newer Megatron-LM)",
    "model_full_attention": "model, full attention (PaLM, Narayanan 2021)",
    "hardware": "hardware, with the recompute that ran",
    "legacy": "legacy x4/3 count of the published tables",
}
"""The four countings, by their names in the fields."""
SAME = 0.02
"""Two FLOP/s that differ by no more than this share are called the same."""
_DIGITS = 0.005
"""Half of the last digit that logs print of a TFLOP/s."""


def flops_per_token(known: Shaped) -> dict[str, float | None]:
    """Return the FLOPs of one token by the names of `COUNTS`."""
    shape = known.shape
    if shape is None:
        return dict.fromkeys(COUNTS)
    legacy = None
    if known.is_recomputed is not None:
        legacy = legacy_flops_per_iteration(shape, 1, recompute=known.is_recomputed) / shape.sequence_length
    return {
        "model": model_flops_per_token(shape),
        "model_full_attention": model_flops_per_token(shape, causal=False),
        "hardware": hardware_flops_per_token(shape, known.recompute) if known.recompute else None,
        "legacy": legacy,
    }


def stated_countings(entry: "RunResult", per_token: dict[str, float | None]) -> Iterator[str]:
    """Say for each FLOP/s that the log prints which counting it is: by its last line that also has a time."""
    known = {name: flops for name, flops in per_token.items() if flops}
    if not known or not entry.num_gpus or entry.throughput is None:
        return
    for field, words in (("tflops", "TFLOPs"), ("model_tflops", "model TFLOP/s")):
        for record in reversed(entry.records[-3:]):
            tokens = record.tokens or (record.global_batch_size or 0) * (entry.sequence_length or 0)
            stated = getattr(record, field)
            if not stated or not tokens or not record.elapsed_s:
                continue
            if stated * SAME < _DIGITS:
                yield f"the log's {words} {stated:g} (line {record.line_number}) has too few digits to tell its counting"
                break
            scale = tokens / record.elapsed_s / entry.num_gpus / 1e12
            yield _which(f"the log's {words} {stated:g} (line {record.line_number})", stated, known, scale)
            break


def _which(words: str, stated: float, known: dict[str, float], scale: float) -> str:
    """Name the counting that gives `stated`, the nearest of those within `SAME`."""
    off = {name: flops * scale / stated - 1 for name, flops in known.items()}
    nearest = min(off, key=lambda name: abs(off[name]))
    if abs(off[nearest]) > SAME:
        ours = ", ".join(f"{name.replace('_', ' ')} {flops * scale:.4g}" for name, flops in known.items())
        return f"{words} is none of the counts ({ours}), the nearest is {100 * off[nearest]:+.1f} % off"
    others = [name for name in off if name != nearest and abs(off[name] - off[nearest]) < _DIGITS / stated]
    also = "".join(f" (and the {name.replace('_', ' ')} count, which is the same here)" for name in others)
    return f"{words} is the count: {COUNTS[nearest]}{also}; it differs by {100 * abs(off[nearest]):.2f} %"
