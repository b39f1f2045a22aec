"""The answer of one run: its numbers, how good they are and what to do next.

A terminal, the page and a notebook write the same lines.
"""

import html
import shlex
from collections.abc import Iterator, Sequence
from textwrap import wrap

from nlp_bench.config.accelerators import product
from nlp_bench.escape import end_of, inert, shortened
from nlp_bench.immutable import immutable
from nlp_bench.measure.judgement import INVALID
from nlp_bench.measure.limit import VERDICTS, Verdict
from nlp_bench.measure.quality import Quality
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.shape import shaped
from nlp_bench.measure.throughput import times_to_report_s
from nlp_bench.measure.window import Steadiness
from nlp_bench.outcome import Outcome
from nlp_bench.reason import texts
from nlp_bench.show.table import plain, significant, small, spaced, tflops, tokens_in_words, with_spaces

WIDTH, MAX_LINES, MAX_NOTES, NOTE_LINES = 110, 14, 3, 2
MAX_SOURCE = 40
SUSTAINED_APART = 0.01  # share of the steady rate by which the sustained one differs to have a line
UNKNOWN_DIGITS = 3  # significant digits of a number without an interval
SAID_BY_QUALITY = frozenset({"no-interval", "drift", "slow-end"})  # codes of reasons that the word says
UNIT_MARGIN = 30  # excess over the limit, in limits, from which it may be meant in minutes or hours
LARGE_MARGIN = 10  # the same from which the time is given as a multiple of the limit


@immutable
class Number:
    """One rate and its time, as people read them."""

    name: str  # reference, steady or sustained
    rate: str  # in tokens/s
    rate_interval: str  # "LOW to HIGH", empty where there is none
    time: str  # in seconds
    time_interval: str
    where: str  # what it is over
    is_deciding: bool  # whether this is the number to hand in


@immutable
class Answer:
    """What a person needs of one run, above everything else."""

    source: str
    outcome: str
    what: str  # model, devices, batch
    tokens: str  # of the hypothetical training, in words
    numbers: Sequence[Number]
    quality: Quality | None
    quality_words: str
    lines: Sequence[tuple[str, str]]  # limit, rules, why there is no number
    notes: Sequence[str]
    next_step: str  # what to do now, empty where the lines above say it
    details: str  # the command that explains the number


def answer_of(entry: RunResult, tokens: int, cost: str = "") -> Answer:
    """Return the answer for one run.

    `tokens` is the length of the hypothetical training, `cost` that of its energy with the unit.
    """
    numbers = tuple(numbers_of(entry, tokens))
    return Answer(
        source=inert(end_of(entry.source, MAX_SOURCE)),
        outcome=entry.outcome.value,
        what=", ".join(_what(entry)),
        tokens=tokens_in_words(tokens),
        numbers=numbers,
        quality=entry.quality,
        quality_words=_quality_words(entry),
        lines=tuple(_lines(entry, tokens, cost)),
        notes=tuple(_notes(entry)),
        next_step=_next_step(entry, numbers),
        details=_details(entry),
    )


def _notes(entry: RunResult) -> list[str]:
    """Return what to know about the number, the gravest first; without one the reasons are lines of their own."""
    if not entry.has_number:
        return [inert(text) for text in entry.remarks]
    supplied = "; ".join(each.words for each in entry.supplied)
    others = texts(reason for reason in entry.reasons if reason.code not in SAID_BY_QUALITY)
    found = [*texts(entry.doubts), *([f"supplied by hand: {supplied}"] if supplied else []), *others, *entry.remarks]
    is_said = {entry.rules.note()} if entry.rules else set()
    return [inert(text) for text in dict.fromkeys(found) if text not in is_said]


def _what(entry: RunResult) -> Iterator[str]:
    """Yield the model on its devices, and the batch."""
    yield " on ".join(part for part in (_model(entry), devices(entry)) if part)
    if entry.global_batch_size:
        yield f"batch {entry.global_batch_size}"


def _model(entry: RunResult) -> str:
    known = entry.efficiency.shaped if entry.efficiency else shaped(entry.workload, entry.sequence_length)
    shape = known.shape
    family = str(entry.workload.value("model_family") or "gpt").upper()
    size = f"{family} {_short(shape.parameters)}" if shape else ""
    name = entry.model or ""
    if not name or (size and name.isdecimal()):
        return size or (f"{entry.dialect} log" if entry.dialect else "")
    return f"{name} ({size})" if size else name


def _short(number: int) -> str:
    """Return a number of parameters in three digits: 175B, 4.23M."""
    for unit, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return str(number)


def devices(entry: RunResult) -> str:
    """Return number and product of a run's devices: 384 A100-SXM4-40GB, 2 CPU ranks; empty where neither is known."""
    number = entry.num_gpus
    if entry.accelerator == "cpu":
        return f"{number or 'CPU'} CPU rank{'' if number == 1 else 's'}" if number else "CPU"
    name = entry.workload.value("gpu") or entry.given.gpu
    kind = product(str(name)).upper()[:24] if name else "GPU" if number == 1 else "GPUs"
    return f"{with_spaces(number)} {kind}" if number else kind if name else ""


def numbers_of(entry: RunResult, tokens: int) -> Iterator[Number]:
    """Yield the numbers of a run as people read them."""
    deciding = deciding_number(entry)
    for name, rate, ci95, where in _rates(entry):
        if name == "reference":
            shown_rate, rate_interval = spaced(significant(rate, 5)), ""
            time, time_interval = spaced(plain(tokens / rate)), ""
        else:
            shown_rate, rate_interval = _with_interval(rate, ci95)
            time, time_interval = _with_interval(tokens / rate, times_to_report_s(tokens, ci95))
        yield Number(
            name=name,
            rate=shown_rate,
            rate_interval=rate_interval,
            time=time,
            time_interval=time_interval,
            where=where,
            is_deciding=name == deciding,
        )


def _rates(entry: RunResult) -> Iterator[tuple[str, float, tuple[float, float] | None, str]]:
    """Yield name, tokens per second, 95 % interval and window of each number."""
    measured = entry.throughput
    if entry.reference:
        yield "reference", entry.reference, None, "warm-up included" if measured else "published value"
    if measured:
        window, found = measured.window, measured.sustained
        yield "steady", measured.steady, measured.ci95, f"iterations {window.first_iteration}-{window.last_iteration}"
        if found and abs(measured.steady / found.tokens_per_second - 1) > SUSTAINED_APART:
            yield "sustained", found.tokens_per_second, found.ci95, "nothing left out"


def deciding_number(entry: RunResult) -> str:
    """Return the number to hand in: what a time limit of the rules asked for names, else the reference, else the steady one."""
    for finding in entry.rules.findings if entry.rules and entry.rules.is_asked else ():
        for found in finding.evidence:
            if found.status and finding.check == "time-limit":
                return found.name.removeprefix("time_to_report_").removesuffix("_s")
    return "reference" if entry.reference else "steady"


def _with_interval(value: float, interval: tuple[float, float] | None) -> tuple[str, str]:
    """Return a value and its interval with two significant digits of the half width."""
    shown, ends = digits_of(value, interval)
    return spaced(shown), " to ".join(map(spaced, ends))


def digits_of(value: float, interval: tuple[float, float] | None) -> tuple[str, tuple[str, ...]]:
    """Return a value and the ends of its interval with two significant digits of the half width.

    Without an interval the value has UNKNOWN_DIGITS significant digits.
    """
    if interval is None or interval[0] == interval[1]:
        return significant(value, UNKNOWN_DIGITS), ()
    half = (interval[1] - interval[0]) / 2
    return significant(value, 2, half), tuple(significant(end, 2, half) for end in interval)


def _quality_words(entry: RunResult) -> str:
    """Return what the word of quality rests on, and what to do where it is not GOOD."""
    measured, word = entry.throughput, entry.quality
    if measured is None or word is None:
        return ""
    intervals = _intervals(measured.window.num_records)
    spread = measured.why_no_interval or ""
    if measured.ci95 and measured.estimate:
        half_width = 100 * measured.estimate.relative_half_width()
        spread = f"the steady speed is known to +-{significant(half_width, 2)} % from {intervals}"
    elif measured.estimate:
        spread += f", from {intervals}"
    return f"{_drift(measured.steadiness)}; {spread}" if word is Quality.DRIFTING else spread


def _intervals(number: int) -> str:
    return f"{with_spaces(number)} logged interval{'' if number == 1 else 's'}"


def _next_step(entry: RunResult, numbers: Sequence[Number]) -> str:
    """Return what to do now, by the rules, the outcome and the quality."""
    word, measured = entry.quality, entry.throughput
    if word is None or measured is None:
        return ""
    if entry.rules and entry.rules.result == INVALID:
        return "keep the rules that are broken, and run again"
    if entry.outcome is Outcome.MEASURED:
        return "let the run finish first: MEASURED is not VALID"
    if word in {Quality.DRIFTING, Quality.NOISY}:
        return "run longer: which speed lasts is not known" if word is Quality.DRIFTING else "repeat on a quiet machine"
    more = measured.num_more if measured.ci95 else None
    longer = f"run longer: about {_intervals(more)} more for +-1 %" if more else "run longer"
    if word is Quality.SHORT:
        return longer
    bundle = f": nlp-bench bundle {shlex.quote(entry.source)}" if entry.workload.is_of_run else ""
    hand_in = [f"hand in {found.time} s{bundle}" for found in numbers if found.is_deciding]
    return "; ".join([*hand_in, *([longer] if more else [])])


def _details(entry: RunResult) -> str:
    """Return the command that explains the number, with the options that it rests on."""
    given = [word for each in entry.supplied for word in (f"--{each.name.replace('_', '-')}", str(each.value))]
    return shlex.join(["nlp-bench", "report", entry.source, *given, "--explain"]) if entry.has_number else ""


def _drift(steadiness: Steadiness) -> str:
    if steadiness.slowdown is not None:
        return f"{100 * steadiness.slowdown:.1f} % slower after the window"
    drift = steadiness.drift or 0.0
    return f"{100 * abs(drift):.1f} % {'slower' if drift > 0 else 'faster'} at the end of the window"


def _lines(entry: RunResult, tokens: int, cost: str) -> Iterator[tuple[str, str]]:
    if not entry.has_number:
        yield from (("reason", inert(text)) for text in entry.reason_texts)
    if per_gpu := _per_gpu(entry):
        yield "per GPU" if entry.accelerator != "cpu" else "per rank", ", ".join(per_gpu)
    if entry.energy and entry.energy.joules_per_token:
        parts = [f"{small(entry.energy.joules_per_token)} J/token", f"{small(entry.energy.kwh(tokens))} kWh"]
        yield "energy", ", ".join([*parts, *([cost] if cost else [])])
    if entry.verdict:
        yield "limit", f"{entry.verdict.word}: {verdict_words(entry.verdict)}"
    if entry.rules and entry.has_number:
        yield "rules", inert(entry.rules.note().removeprefix("rules "))


def _per_gpu(entry: RunResult) -> list[str]:
    """Return tokens/s, model FLOP/s and MFU of one device, as far as they are known."""
    rate, found = entry.tokens_per_second_per_gpu, entry.efficiency
    parts = [f"{significant(rate, 4)} tokens/s steady"] if rate else []
    if found and found.model_tflops_per_gpu:
        parts.append(f"{tflops(found.model_tflops_per_gpu)} TFLOP/s")
    if found and found.mfu is not None:
        parts.append(f"MFU {100 * found.mfu:.1f} %")
    return parts


def verdict_words(judgement: Verdict) -> str:
    """Return what the verdict says, without its word."""
    limit = f"the limit of {judgement.limit_s:g} s"
    if judgement.margin is None:
        return f"{'; '.join(judgement.reasons)} ({limit})"
    apart = f"{100 * abs(judgement.margin):.1f} %"
    if judgement.margin <= -LARGE_MARGIN:
        apart = f"{1 - judgement.margin:.3g} times"
    where = f"{apart} {'below' if judgement.margin >= 0 else 'above'} it"
    unit = " (is that limit in seconds?)" if judgement.margin <= -UNIT_MARGIN else ""
    if does := VERDICTS[judgement.word].proves:
        return f"the run is proven to {does} {limit}, {where}{unit}"
    return f"{'; '.join(judgement.reasons)}; {limit} is not decided, the time is {where}{unit}"


def answer_lines(answer: Answer) -> list[str]:
    """Return the block for a terminal: at most MAX_LINES lines of at most WIDTH columns."""
    lines = wrapped(f"{answer.source}  {answer.outcome}   {answer.what}", WIDTH)[:2]
    lines += _number_lines(answer)
    if answer.quality:
        lines += _wrapped("quality", f"{answer.quality.value}: {answer.quality_words}", 2)
    is_short = bool(answer.numbers)
    for name, text in answer.lines:
        lines += _wrapped(name, text, NOTE_LINES if is_short else MAX_LINES)
    last = _wrapped("next", answer.next_step, 2) if answer.next_step else []
    last += _wrapped("details", answer.details, 3) if answer.details else []
    room = MAX_LINES - len(lines) - len(last)
    notes: list[str] = []
    for index, note in enumerate(answer.notes):
        lines_of_note, num_left = _wrapped("note", note, NOTE_LINES), len(answer.notes) - index
        is_last = num_left == 1
        if index == MAX_NOTES or len(notes) + len(lines_of_note) > room - (not is_last):
            notes += _wrapped("note", f"{num_left} more: --explain", 1) if room > len(notes) else []
            break
        notes += lines_of_note
    return [inert(line) for line in (*lines[: MAX_LINES - len(last)], *notes, *last)]


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text in lines; a path or an option is never broken, so that it can be copied."""
    return wrap(text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def answers_html(answers: Sequence[Answer]) -> str:
    """Return what a notebook shows of runs: a table with a group of rows for each."""
    return f"<table>{''.join(row for answer in answers for row in _html_rows(answer))}</table>"


def _html_rows(answer: Answer) -> Iterator[str]:
    yield _html_row("th", f"{answer.source} {answer.outcome}", answer.what)
    for row in _number_cells(answer):
        yield _html_row("td", *row)
    if answer.quality:
        yield _html_row("td", "quality", f"{answer.quality.value}: {answer.quality_words}")
    notes = [("note", note) for note in answer.notes[:MAX_NOTES]]
    for name, text in (*answer.lines, *notes, *([("next", answer.next_step)] if answer.next_step else [])):
        yield _html_row("td", name, text)


def _html_row(tag: str, *cells: str) -> str:
    """Return a row of _HTML_COLUMNS columns, the last cell over those that are left."""
    parts = [f"<{tag}>{html.escape(inert(cell))}</{tag}>" for cell in cells]
    parts[-1] = parts[-1].replace(f"<{tag}>", f'<{tag} colspan="{_HTML_COLUMNS + 1 - len(cells)}">', 1)
    return f"<tr>{''.join(parts)}</tr>"


_HTML_COLUMNS = 4


def _number_cells(answer: Answer) -> list[tuple[str, str, str, str]]:
    """Return name, rate, time and window of each number, as people read them."""
    return [
        (
            found.name,
            f"{found.rate} tokens/s{f' ({found.rate_interval})' if found.rate_interval else ''}",
            f"{answer.tokens} tokens in {found.time} s{f' ({found.time_interval})' if found.time_interval else ''}",
            f"{_HAND_IN}: {found.where}" if found.is_deciding else found.where,
        )
        for found in answer.numbers
    ]


def _number_lines(answer: Answer) -> Iterator[str]:
    rows = _number_cells(answer)
    if not rows:
        return
    rates, times = (max(len(row[index]) for row in rows) for index in (1, 2))
    for name, rate, time, where in rows:
        line = f"{name:<{_NAME}}{rate:<{rates}}   {time:<{times}}   "
        fitting = [text for text in (where, where.partition(":")[0]) if len(line) + len(text) <= WIDTH]
        yield line + fitting[0] if fitting else line.rstrip()
        if not fitting:
            yield f"{'':<{_NAME}}{where}"


_NAME = 11
_HAND_IN = "hand this in"


def _wrapped(name: str, text: str, most: int) -> list[str]:
    """Return a line that begins with what it is about, wrapped; what would need more than `most` lines is cut."""
    width = WIDTH - _NAME
    parts = wrapped(text, width) or [""]
    if len(parts) > most:
        parts = [*parts[: most - 1], shortened(" ".join(parts[most - 1 :]), width)]
    return [f"{name if not index else '':<{_NAME}}{part}".rstrip() for index, part in enumerate(parts)]
