"""The efficiency of a run in lines: each count with its formula, its counting and its rate, the peak with its source, side by side."""

from collections.abc import Iterator

from nlp_bench.config.accelerators import Peak
from nlp_bench.layout.flops import Recompute
from nlp_bench.layout.shape import ModelShape, T5Shape
from nlp_bench.measure.efficiency import COUNTS, Efficiency, field_of, flops_per_token
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.shape import Shaped


def efficiency_lines(entry: RunResult) -> Iterator[str]:
    """Yield the lines of `--explain`: each count with its formula, the peak with its source, and what is missing."""
    found = entry.efficiency
    if found is None:
        return
    shape = found.shaped.shape
    if shape:
        yield _line("shape", _shape_words(shape))
        for name, flops in flops_per_token(found.shaped).items():
            if flops is not None:
                yield _line("FLOPs", f"{flops:.6e} per token: {COUNTS[name]} = {_formula(name, found.shaped)}")
    for name, words in COUNTS.items():
        value = getattr(found, field_of(name))
        if value is not None:
            rate = f"{found.tokens_per_second:.2f} tokens/s ({found.rate}) / {found.num_gpus} GPUs"
            yield _line("TFLOP/s", f"{value:.4g} per GPU: {words} = its FLOPs x {rate}")
    if found.peak:
        yield _line(
            "peak",
            f"{found.peak.tflops:g} TFLOP/s, {found.peak.accelerator} in {found.peak.number_format}: {found.peak.source}",
        )
        yield from _shares(found, found.peak)
    for text in (*found.stated, *found.assumed, *found.why_not):
        yield _line("FLOP/s", text)


def _shares(found: Efficiency, peak: Peak) -> Iterator[str]:
    rows = (
        ("MFU", found.mfu, found.model_tflops_per_gpu, COUNTS["model"]),
        ("MFU", found.mfu_full_attention, found.model_tflops_full_attention_per_gpu, COUNTS["model_full_attention"]),
        ("HFU", found.hfu, found.hardware_tflops_per_gpu, COUNTS["hardware"]),
    )
    for name, share, tflops, words in rows:
        if share is not None:
            yield _line(name, f"{100 * share:.2f} % = {tflops:.4g} / {peak.tflops:g}: {words}")


def _line(name: str, text: str) -> str:
    return f"  {name:<9} {text}"


def _shape_words(shape: ModelShape) -> str:
    gate = "gated, " if shape.gated else ""
    decoder = (
        f" and {shape.num_decoder_layers} of the decoder with t = {shape.decoder_sequence_length}"
        if isinstance(shape, T5Shape)
        else ""
    )
    return (
        f"l = {shape.num_layers} layers{decoder}, h = {shape.hidden_size}, f = {shape.ffn_hidden_size} ({gate}m = {3 if shape.gated else 2} matrices), "
        f"q = {shape.query_width}, k = {shape.key_value_width} ({shape.num_attention_heads} heads, {shape.num_query_groups} groups), "
        f"s = {shape.sequence_length}, V = {shape.padded_vocab_size}; {shape.parameters:,} parameters"
    )


def _formula(name: str, known: Shaped) -> str:
    if known.shape and type(known.shape) is not ModelShape:
        return _of_family(name, known)
    if name == "legacy":
        passes, words = (4, "recompute of any kind") if known.is_recomputed else (3, "no recompute")
        return f"24 x {passes} l h^2 (1 + s/(6h) + V/(16 l h)), {passes} for {words}"
    if name == "hardware" and known.recompute and known.shape:
        return _hardware(known.recompute, known.shape)
    half = "1/2 " if name == "model" else ""
    return f"3 (l (4 h (q + k) + {half}4 s q + 2 m h f) + 2 h V)"


def _of_family(name: str, known: Shaped) -> str:
    """Say in words what T5 and BERT compute, whose formulas are those of `docs/flops.md`."""
    if name == "legacy":
        return f"{4 if known.is_recomputed else 3} x forward of all layers with full attention + 3 x head (a GPT's formula does not fit)"
    if name == "hardware":
        return "model + what is computed again, summed over the layers that run"
    half = ", the decoder's own scores as half" if name == "model" and isinstance(known.shape, T5Shape) else ""
    return f"3 x (all layers + head) / s{half}"


def _hardware(recompute: Recompute, shape: ModelShape) -> str:
    """Say what is added to the model's FLOPs; `core` is 4 s q, the attention core of one layer without a mask."""
    counting, core = ("causal", "core/2") if recompute.fused_attention else ("full attention", "core")
    again = []
    if recompute.fused_attention:
        again.append("l core/4 (a fused kernel's own scores)")
    if recompute.repeats_core:
        again.append(f"l {core} (selective recompute)")
    if recompute.granularity == "full":
        again.append(
            f"{recompute.layers_twice(shape.num_layers)} of {shape.num_layers} layers forward (full recompute)"
        )
    asked = "no" if recompute.granularity == "none" else recompute.granularity
    return f"model, {counting} + {' + '.join(again) or 'nothing'}, core = 4 s q ({asked} recompute was asked for)"
