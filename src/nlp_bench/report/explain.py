"""Each number of a report with its lines, window, formula and what was left out, so that it can be recomputed by hand.

Below it the number in words that need no statistics: for the person who signs.
"""

from collections.abc import Iterator

from nlp_bench.config.accelerators import Peak
from nlp_bench.escape import from_to
from nlp_bench.layout.flops import Recompute
from nlp_bench.layout.shape import ModelShape, T5Shape
from nlp_bench.measure.efficiency import Efficiency, field_of, flops_per_token, words_of
from nlp_bench.measure.estimate import Uncertainty
from nlp_bench.measure.limit import Verdict
from nlp_bench.measure.provenance import Arithmetic, LogPosition, Provenance, arithmetic_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.shape import Shaped
from nlp_bench.measure.throughput import Clock, Summary, Sustained, Throughput, times_to_report_s
from nlp_bench.measure.window import span_of
from nlp_bench.report.answer import verdict_words
from nlp_bench.report.report import Report, legend, notes, pooled
from nlp_bench.show.table import Column, Table, as_document, as_text, exact, fact, number

Facts = Iterator[tuple[str, str]]  # what each line is about, and the line


def explain(report: Report) -> str:
    """Return the explanation of all runs, with an empty line between two."""
    parts = [[*pooled(report), *notes(report)]] if len(report.entries) > 1 else []
    for entry in report.entries:
        head = f"{entry.source}: {entry.outcome.value}, dialect {entry.dialect or 'unknown'}"
        rules, energy = entry.rules.lines() if entry.rules else (), energy_facts(entry, report.tokens)
        found = (*number_facts(entry, report.tokens), *rules, *energy, *origin_facts(entry))
        words = [f"  {line}" for line in run_lines(entry, report)]
        parts.append([head, *(fact(name, text).rstrip() for name, text in found), *words])
    return as_document(*parts, legend(report))


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
    for name, origin in found.quantities.items():
        value = "" if origin.value is None else f" = {exact(origin.value)}"
        yield "from", f"{name}{value}: {origin.source or 'not known'}"
    for left in found.left_out:
        where = f" ({from_to('line', *left.lines)})" if left.lines else ""
        yield "left out", f"{left.count} {left.what}{where}: {left.why}"


def _records(entry: RunResult, found: Provenance) -> Facts:
    first, last, window = found.first_record, found.last_record, found.window_first_record
    if not first or not last:
        return
    where = f"{from_to('line', first.line, last.line)} of the log (bytes {first.offset} to {last.offset})"
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
    uncertainty = measured.estimate.uncertainty if measured.estimate else None
    if measured.ci95 and uncertainty:
        (low, high), seen = measured.ci95, measured.steadiness.autocorrelation
        alike = "too short to see" if seen is None else f"{seen:.2f}"
        how = f"(95 %: {_parts(uncertainty)}; autocorrelation {alike})"
        yield "interval", f"{low:.2f} to {high:.2f} tokens/s, {tokens / high:.2f} to {tokens / low:.2f} s {how}"
    if measured.sustained:
        found = measured.sustained
        where = f"iterations {found.first_iteration} to {found.last_iteration} in {found.seconds:.4f} s by the {found.clock.value}"
        rate = found.tokens_per_second
        yield "sustained", f"{rate:.2f} tokens/s, {tokens / rate:.2f} s: {where}"
    if entry.tokens_per_second_per_gpu:
        yield "per GPU", f"{entry.tokens_per_second_per_gpu:.2f} tokens/s = steady / {entry.num_gpus} GPUs"
    if measured.seconds_per_iteration:
        yield "iteration", _seconds(measured.seconds_per_iteration)


def _parts(found: Uncertainty) -> str:
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
    origin = entry.provenance.quantities.get("seconds_per_iteration") if entry.provenance else None
    is_logged = origin and origin.is_logged
    weighed = ", each weighed by its iterations" if measured.sizes.is_of_clock else ""
    return f"{tokens} / {exact(sums.mean_s)} s, the mean of all {sums.num_times}{' logged' if is_logged else ''} times{weighed}"


def _steady_formula(entry: RunResult, measured: Throughput, sums: Arithmetic) -> str:
    window, found = measured.window, entry.provenance or Provenance()
    first, last = found.window_first_record, found.window_last_record
    lines = f", {from_to('line', first.line, last.line)}" if first and last else ""
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
    shape, counts = found.shaped.shape, words_of(found.shaped)
    if shape:
        yield "shape", _shape_words(shape)
        for name, flops in flops_per_token(found.shaped).items():
            if flops is not None:
                yield "FLOPs", f"{flops:.6e} per token: {counts[name]} = {_formula(name, found.shaped)}"
    for name, words in counts.items():
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
    counts = words_of(found.shaped)
    rows = (
        ("MFU", found.mfu, found.model_tflops_per_gpu, counts["model"]),
        ("MFU", found.mfu_full_attention, found.model_tflops_full_attention_per_gpu, counts["model_full_attention"]),
        ("HFU", found.hfu, found.hardware_tflops_per_gpu, counts["hardware"]),
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
    return "3 x (all layers + head) / s"


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


ONE_RUN = "This is one run: how much runs differ from each other is not in it; repeat it (repeats: 5) to know."
OTHER_WINDOWS = "The number under other windows"


def run_lines(entry: RunResult, report: Report) -> Iterator[str]:
    """Yield the lines about one run: the sentences, then the number under other windows."""
    tokens, measured, judgement = report.tokens, entry.throughput, entry.verdict
    if measured is None:
        return
    yield f"In words: {entry.source}"
    yield from (f"  {sentence}" for sentence in sentences(entry, measured, tokens, judgement))
    if not report.is_repeated(entry):
        yield f"  {ONE_RUN}"
    if windows := other_windows(measured, tokens, judgement):
        yield f"  {OTHER_WINDOWS}:"
        yield from (f"    {line}" for line in as_text(windows, least=(12, 9, 5), has_rule=False))


_WORTH_SAYING, _WORTH_ROUNDING = 0.005, 0.001


def sentences(entry: RunResult, measured: Throughput, tokens: int, judgement: Verdict | None) -> Iterator[str]:
    """Yield the sentences about one run, the verdict first where there is one."""
    steady_s, window = tokens / measured.steady, measured.window
    uncertainty = measured.estimate.uncertainty if measured.estimate else None
    if judgement:
        yield f"{judgement.word}: {verdict_words(judgement)}"
    where = from_to("iteration", window.first_iteration, window.last_iteration)
    yield f"At the steady speed of {where}, {tokens:,} tokens take {steady_s:.2f} s.{_left_out(measured)}"
    if interval := entry.time_ci95_s(tokens):
        low, high = interval
        said = f"The 95 % interval is {low:.2f} to {high:.2f} s: of intervals made in this way 95 in 100 hold the true time. "
        iterations = f" ({uncertainty.num_iterations:.0f} iterations)" if uncertainty else ""
        said += f"Its slow end allows for stalls too rare to show in {window.num_records} logged intervals{iterations}."
        if uncertainty and uncertainty.rounding >= _WORTH_ROUNDING:
            said += " Its values scatter by less than the last digit that the log prints, and may all be rounded the same way: "
            said += f"+-{100 * uncertainty.rounding:.2g} % of it."
        yield said + _more(measured)
    elif measured.why_no_interval:
        yield f"How far this can be off is not known: {measured.why_no_interval}."
    if measured.sustained:
        yield _sustained(measured.sustained, measured.steady, tokens, judgement)
    yield from (f"Note: {said}." for said in measured.steadiness.words())
    if judgement:
        yield _dependence(judgement)


def _sustained(found: Sustained, steady: float, tokens: int, judgement: Verdict | None) -> str:
    """Say also what the sustained time has that the steady time has not, where that is worth a sentence."""
    interval_s, share = times_to_report_s(tokens, found.ci95), steady / found.tokens_per_second - 1
    between = f" ({interval_s[0]:.2f} to {interval_s[1]:.2f} s)" if interval_s else ""
    where = from_to("iteration", found.first_iteration, found.last_iteration)
    word = f", against the limit {judgement.sustained}" if judgement and judgement.sustained else ""
    number = found.num_missing
    lines = f"without the {number} {'line that is' if number == 1 else 'lines that are'} missing" if number else ""
    num = found.num_untimed
    untimed = f" ({num} evaluation(s) or checkpoint(s), whose time is not in the log)" if num else ""
    is_logged = found.clock is Clock.LOGGED
    inside = f"without what lies between the lines{untimed}," if is_logged else "with nothing left out"
    what = f"Sustained, {lines or inside} from {where} ({found.clock.value})"
    said = f"{what}: {tokens / found.tokens_per_second:.2f} s{between}{word}."
    if share < _WORTH_SAYING:
        return said
    return f"{said} That is {100 * share:.1f} % more than at the steady speed: evaluations, checkpoints and whatever else lies between the lines count."


def _left_out(measured: Throughput) -> str:
    excluded = measured.window.excluded
    parts = [f"{span_of(stretch)} ({stretch.why})" for stretch in excluded[:4]]
    more = len(excluded) - len(parts)
    if not parts:
        return ""
    is_one = len(excluded) == 1 and excluded[0].first_iteration == excluded[0].last_iteration
    others = f" and {more} more {'stretch' if more == 1 else 'stretches'}" if more > 0 else ""
    return f" Not counted: {'iteration' if is_one else 'iterations'} {', '.join(parts)}{others}."


def _more(measured: Throughput) -> str:
    more = measured.num_more
    if more is None:
        return ""
    if more == 0:
        return " That is within 1 %: the run is long enough."
    step = measured.window.iterations_per_record
    every = f" of {step} iterations" if step > 1 else ""
    intervals = "one more interval" if more == 1 else f"{more} more intervals"
    return f" For 1 %, run about {intervals}{every}, if they scatter as these do."


def _dependence(judgement: Verdict) -> str:
    if judgement.depends_on_window is None:
        return "There is no other window to compare with."
    if not judgement.depends_on_window:
        word = "within" if judgement.num_within else "above"
        return f"The verdict does not depend on the window: under all {judgement.num_windows} usual windows the time is {word} the limit."
    give = "gives" if judgement.num_within == 1 else "give"
    return (
        f"The verdict depends on the window: of {judgement.num_windows} usual windows {judgement.num_within} {give} a time within the limit and "
        f"{judgement.num_windows - judgement.num_within} one above it; agree on the window before you agree on the number."
    )


def other_windows(measured: Throughput, tokens: int, judgement: Verdict | None) -> Table:
    """Return the number under the windows of other tools, and what each would say of the limit; empty without another."""
    if not measured.sensitivity:
        return []
    window = measured.window
    own = f"steady (this report): {from_to('iteration', window.first_iteration, window.last_iteration)}"
    found = [(own, measured.steady, window.num_records)]
    found += [
        (f"{c.name}{f' ({c.used_by})' if c.used_by else ''}", c.tokens_per_second, c.num_records)
        for c in measured.sensitivity
    ]
    names, rates, numbers = zip(*found, strict=True)
    times = [tokens / rate for rate in rates]
    limit = [Column(heading="limit", cells=["within" if time_s <= judgement.limit_s else "above" for time_s in times], is_text=True)] if judgement else []  # fmt: skip
    return [
        Column(heading="tokens/s", cells=rates, form=number),
        Column(heading="time s", cells=times, form=number),
        Column(heading="lines", cells=numbers),
        *limit,
        Column(heading="window", cells=names, is_text=True),
    ]
