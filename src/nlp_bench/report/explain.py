"""Each number of a report with its lines, window, formula and what was left out, so that it can be recomputed by hand."""

from collections.abc import Iterator

from nlp_bench.config.accelerators import Peak
from nlp_bench.layout.flops import Recompute
from nlp_bench.layout.shape import ModelShape, T5Shape
from nlp_bench.measure.efficiency import COUNTS, Efficiency, field_of, flops_per_token
from nlp_bench.measure.estimate import Estimate
from nlp_bench.measure.provenance import Arithmetic, LogPosition, Provenance, arithmetic_of, lines_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.shape import Shaped
from nlp_bench.measure.throughput import Summary, Throughput
from nlp_bench.report.report import Report
from nlp_bench.report.sentences import MAX_RUNS, run_lines
from nlp_bench.show.table import as_document, exact, fact

Facts = Iterator[tuple[str, str]]  # what each line is about, and the line


def explain(report: Report) -> str:
    """Return the explanation of all runs, with an empty line between two."""
    is_spoken = len(report.entries) <= MAX_RUNS  # by the table already
    parts = []
    for entry in report.entries:
        head = f"{entry.source}: {entry.outcome.value}, dialect {entry.dialect or 'unknown'}"
        words = [] if is_spoken else [f"  {line}" for line in run_lines(entry, report)]
        parts.append([head, *(fact(name, text).rstrip() for name, text in _facts(entry, report.tokens)), *words])
    return as_document(*parts)


def _facts(entry: RunResult, tokens: int) -> Facts:
    yield from number_facts(entry, tokens)
    yield from entry.rules.lines() if entry.rules else ()
    yield from energy_facts(entry, tokens)
    yield from origin_facts(entry)


def number_facts(entry: RunResult, tokens: int) -> Facts:
    """Yield the records of a run, each number with its formula, and FLOP/s."""
    found = entry.provenance or Provenance()
    yield from (("note", text) for text in (*entry.reason_texts, *entry.remarks))
    yield from _records(entry, found)
    if entry.throughput:
        sums = found.arithmetic or arithmetic_of(entry.throughput)
        yield from _numbers(entry, entry.throughput, sums, tokens)
    elif entry.reference:
        yield from _rate("reference", entry.reference, tokens, "the published value")
    else:
        yield "no number", ""
    yield from efficiency_facts(entry)


def origin_facts(entry: RunResult) -> Facts:
    """Yield where each quantity is from, and what was left out."""
    found = entry.provenance or Provenance()
    for name, origin in (found.quantities or {}).items():
        value = "" if origin.value is None else f" = {exact(origin.value)}"
        yield "from", f"{name}{value}: {origin.source or 'not known'}"
    for left in found.left_out:
        where = f" ({lines_of(*left.lines)})" if left.lines else ""
        yield "left out", f"{left.count} {left.what}{where}: {left.why}"


def _records(entry: RunResult, found: Provenance) -> Facts:
    first, last, window = found.first_record, found.last_record, found.window_first_record
    if not first or not last:
        return
    where = f"{lines_of(first.line, last.line)} of the log (bytes {first.offset} to {last.offset})"
    iterations = f"iterations {first.iteration} to {last.iteration} of {entry.total_iterations or 'unknown'}"
    yield "records", f"{entry.num_records}, {where}, {iterations}"
    yield from _quote(first)
    if window and window.line != first.line:
        yield from _quote(window)


def _quote(position: LogPosition) -> Facts:
    if position.text is not None:
        yield f"line {position.line}", position.text


def _numbers(entry: RunResult, measured: Throughput, sums: Arithmetic, tokens: int) -> Facts:
    yield from _rate("reference", measured.reference, tokens, _reference_formula(entry, measured, sums))
    yield from _rate("steady", measured.steady, tokens, _steady_formula(entry, measured, sums))
    cut = f"cut at both ends at {measured.window.limit_seconds_per_token:.4e} s per token (median + max(3 %, 3 x 1.4826 x "
    cut += "median absolute deviation)); the interval with the first iteration is warm-up"
    yield "window", f"the level between change points that holds most intervals, {cut}"
    if measured.ci95 and measured.estimate:
        (low, high), seen = measured.ci95, measured.steadiness.autocorrelation
        alike = "too short to see" if seen is None else f"{seen:.2f}"
        how = f"(95 %: {_parts(measured.estimate)}; autocorrelation {alike})"
        yield "interval", f"{low:.2f} to {high:.2f} tokens/s, {tokens / high:.2f} to {tokens / low:.2f} s {how}"
    if measured.sustained:
        found = measured.sustained
        where = f"iterations {found.first_iteration} to {found.last_iteration} in {found.seconds:.4f} s by the {found.clock}"
        rate = found.tokens_per_second
        yield "sustained", f"{rate:.2f} tokens/s, {tokens / rate:.2f} s: {where}"
    if entry.tokens_per_second_per_gpu:
        yield "per GPU", f"{entry.tokens_per_second_per_gpu:.2f} tokens/s = steady / {entry.num_gpus} GPUs"
    if measured.seconds_per_iteration:
        yield "iteration", _seconds(measured.seconds_per_iteration)


def _parts(estimate: Estimate) -> str:
    """Say what an interval is made of."""
    found = estimate.uncertainty
    if found is None:
        share = 100 * estimate.standard_error / estimate.seconds_per_token
        return f"Student t, {estimate.degrees:.1f} degrees of freedom, standard error {share:.3f} %"
    parts = [f"noise {100 * found.noise:.3f} % at {found.degrees:.1f} degrees of freedom"]
    if found.num_stalls:
        cost = 100 * found.stalls / found.num_iterations
        parts.append(f"{found.num_stalls} stall(s) that cost {found.stalls:.2f} iterations, {cost:.2f} % of the time")
    if found.num_switches:
        parts.append(f"two states with {found.num_switches} change(s) between them, {100 * found.switching:.2f} %")
    if found.rounding:
        parts.append(f"rounding of what the log prints {100 * found.rounding:.3g} %")
    parts.append(f"a stall of {found.unseen:.1f} iterations that was not seen")
    return ", ".join(parts)


def _rate(name: str, rate: float | None, tokens: int, formula: str) -> Facts:
    if rate is None:
        yield name, f"none: {formula}"
        return
    yield name, f"{rate:.2f} tokens/s = {formula}"
    yield "time", f"{tokens / rate:.2f} s = {tokens} tokens / {rate:.2f} tokens/s"


def _reference_formula(entry: RunResult, measured: Throughput, sums: Arithmetic) -> str:
    if sums.tokens_per_iteration is None or sums.mean_s is None:
        is_timed = measured.sizes.has_times
        return "the tokens per iteration are not one known number" if is_timed else "the log has rates and no times"
    batch, sequence = entry.global_batch_size, entry.sequence_length
    is_product = batch and sequence and batch * sequence == sums.tokens_per_iteration
    tokens = f"{batch} samples x {sequence} tokens" if is_product else f"{exact(sums.tokens_per_iteration)} tokens"
    origin = (entry.provenance.quantities or {}).get("seconds_per_iteration") if entry.provenance else None
    is_logged = origin and origin.is_logged
    return f"{tokens} / {exact(sums.mean_s)} s, the mean of all {sums.num_times}{' logged' if is_logged else ''} times"


def _steady_formula(entry: RunResult, measured: Throughput, sums: Arithmetic) -> str:
    window, found = measured.window, entry.provenance or Provenance()
    first, last = found.window_first_record, found.window_last_record
    lines = f", {lines_of(first.line, last.line)}" if first and last else ""
    where = f"iterations {window.first_iteration} to {window.last_iteration}, {window.num_records} record(s){lines}"
    if measured.sizes.has_times:
        return f"{exact(sums.window_tokens)} tokens / {exact(sums.window_seconds)} s, {where}"
    mean, alike = ("harmonic mean", "to have as many tokens") if measured.sizes.is_even else ("mean", "to last as long")
    return f"the {mean} of the logged rates over {sums.window_iterations} iteration(s), each taken {alike}, {where}"


def _seconds(summary: Summary) -> str:
    cv = "unknown" if summary.cv is None else f"{summary.cv:.4f}"
    middle = f"mean {summary.mean:.4f} s, median {summary.median:.4f} s"
    return f"{middle}, p95 {summary.p95:.4f} s, p99 {summary.p99:.4f} s, cv {cv}, over the window's records"


def efficiency_facts(entry: RunResult) -> Facts:
    """Yield the lines of `--explain`: each count with its formula, the peak with its source, and what is missing."""
    found = entry.efficiency
    if found is None:
        return
    shape = found.shaped.shape
    if shape:
        yield "shape", _shape_words(shape)
        for name, flops in flops_per_token(found.shaped).items():
            if flops is not None:
                yield "FLOPs", f"{flops:.6e} per token: {COUNTS[name]} = {_formula(name, found.shaped)}"
    for name, words in COUNTS.items():
        value = getattr(found, field_of(name))
        if value is not None:
            rate = f"{found.tokens_per_second:.2f} tokens/s ({found.rate}) / {found.num_gpus} GPUs"
            yield "TFLOP/s", f"{value:.4g} per GPU: {words} = its FLOPs x {rate}"
    if found.peak:
        what = f"{found.peak.accelerator} in {found.peak.number_format}: {found.peak.source}"
        yield "peak", f"{found.peak.tflops:g} TFLOP/s, {what}"
        yield from _shares(found, found.peak)
    for text in (*found.stated, *found.assumed, *found.why_not):
        yield "FLOP/s", text


def _shares(found: Efficiency, peak: Peak) -> Facts:
    rows = (
        ("MFU", found.mfu, found.model_tflops_per_gpu, COUNTS["model"]),
        ("MFU", found.mfu_full_attention, found.model_tflops_full_attention_per_gpu, COUNTS["model_full_attention"]),
        ("HFU", found.hfu, found.hardware_tflops_per_gpu, COUNTS["hardware"]),
    )
    for name, share, tflops, words in rows:
        if share is not None:
            yield name, f"{100 * share:.2f} % = {tflops:.4g} / {peak.tflops:g}: {words}"


def _shape_words(shape: ModelShape) -> str:
    gate = "gated, " if shape.gated else ""
    decoder = ""
    if isinstance(shape, T5Shape):
        decoder = f" and {shape.num_decoder_layers} of the decoder with t = {shape.decoder_sequence_length}"
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


def energy_facts(entry: RunResult, tokens: int) -> Facts:
    """Yield name and text of what `--explain` says on energy and machine."""
    energy = entry.energy
    if energy and energy.joules is not None and energy.joules_per_token is not None:
        per_token, kwh = f"{energy.joules_per_token:.6g} J/token", energy.kwh(tokens) or 0.0
        counted = energy.joules / energy.joules_per_token
        yield "energy", f"{per_token} = {energy.joules:.9g} J / {counted:.9g} tokens of the window"
        yield "energy", f"{kwh:.6g} kWh = {per_token} x {tokens} tokens / 3600000"
        yield "metered", str(energy.boundary)
        if energy.mean_power_w_per_gpu is not None:
            yield "power", f"{energy.mean_power_w_per_gpu:.1f} W per GPU, the mean over the window"
        if energy.cpu_joules_per_token is not None:
            cpu = f"{energy.cpu_joules_per_token:.6g} J/token by RAPL"
            yield "energy", f"CPU packages beside it: {cpu}, not contained above"
        if energy.num_samples is not None:
            rate = f"{energy.num_samples} samples, {energy.samples_per_second:.2f} per second"
            yield "metered", f"{rate}, longest pause {energy.longest_gap_s:.2f} s (the node with the fewest)"
    elif energy:
        yield "energy", f"none: {energy.why_none}"
    if entry.machine:
        from nlp_bench.measure.machine import machine_lines  # noqa: PLC0415  # most reports explain nothing

        yield from (("machine", line) for line in machine_lines(entry.machine))
