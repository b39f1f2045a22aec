"""nanotron: `iteration: N / M | name: value | ...`, numbers with three digits and a suffix (`4.71K`; `2K` is 2.00K).

The sequence length is not in the line; tokens per second x time / batch and consumed tokens / iteration / batch both bound it. Within
these bounds the integer with most factors of two is used; its error is below that of the rounding in any case.
"""

import math

from nlp_bench.logs.clean import label_of, unwrapped
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import Match, late
from nlp_bench.logs.quantity import LARGEST, Bracket, Counted, bounds, number, numbers
from nlp_bench.logs.scan import Line

_START = late(rb"(?<![\w-])iteration: (\d{1,12}) / (\d{1,12}) \|")
_BEHIND = late(rb" \| (?:lm_loss|lr): ")  # the rates and the batch size of a record
_TIMES = (b"elapsed_time_per_iteration_ms", b"time_per_iteration_ms")
_KEYS = {
    b"tokens_per_sec": "tokens_per_second",
    b"tokens_per_sec_per_gpu": "tokens_per_second_per_device",
    b"lm_loss": "lm_loss",
    b"grad_norm": "grad_norm",
    b"model_tflops_per_gpu": "model_tflops",
} | dict.fromkeys(_TIMES, "elapsed_ms")
_NEVER_LAST = (*_TIMES, b"consumed_tokens", b"tokens_per_sec", b"tokens_per_sec_per_gpu", b"global_batch_size")
"""Fields that are never the last in any version: a line that ends with one was cut."""
_NEAREST = "the sequence length {} is the roundest number that the printed digits allow ({:.0f} to {:.0f})"


def _bounds(text: bytes) -> tuple[float, float] | None:
    """Return the bounds of a number: the program rounds to three digits and leaves out zeros at the end (`human_format`)."""
    value, between = number(text), bounds(text)
    if not value or not between or not math.isfinite(value):
        return None
    third = 0.5 * 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    return max(between[0], value - third), min(between[1], value + third)


class _Parser(Parser):
    """Narrows sequence length and devices with each record."""

    reads_each_line = True

    def __init__(self) -> None:
        self._rate, self._total = Bracket(), Bracket()
        self._devices = Counted()

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read records; two processes may have written into one line."""
        if not _START.search(text):
            return
        text = unwrapped(line, text, b"iteration: ", _BEHIND)
        starts = list(_START.finditer(text))
        for position, start in enumerate(starts):
            is_last = position == len(starts) - 1
            end = len(text) if is_last else starts[position + 1].start()
            self._record(text[:end], start, line, findings, is_ended=is_last and line.is_ended)

    def _record(self, text: bytes, start: Match, line: Line, findings: Findings, *, is_ended: bool) -> None:
        fields: dict[bytes, bytes] = {}
        for piece in text[start.end() :].split(b" | "):
            key, _, value_text = piece.strip(b" |").partition(b": ")
            fields.setdefault(key, value_text.strip())
        if fields and (not is_ended or next(reversed(fields)) in _NEVER_LAST):
            fields.popitem()  # its number may be cut
        values = {"iteration": float(start[1]), "total_iterations": float(start[2])}
        values |= numbers((name, fields.get(key)) for key, name in _KEYS.items())
        batch = _bounds(fields.get(b"global_batch_size", b""))
        if batch and batch[1] < LARGEST:
            values["global_batch_size"] = float(Bracket(*batch).roundest or round((batch[0] + batch[1]) / 2))
            self._narrow(int(start[1]), fields, batch)
        self._devices.line = line
        self._devices.ratio(*(_bounds(fields.get(key, b"")) for key in (b"tokens_per_sec", b"tokens_per_sec_per_gpu")))
        findings.record(line, values, label=label_of(text[: start.start()]), is_whole=is_ended)

    def _narrow(self, iteration: int, fields: dict[bytes, bytes], batch: tuple[float, float]) -> None:
        if batch[1] - batch[0] <= 1:
            batch = (round(batch[0] + 0.5), round(batch[0] + 0.5))
        rate = _bounds(fields.get(b"tokens_per_sec", b""))
        time = next((_bounds(fields[key]) for key in _TIMES if key in fields), None)
        if rate and time:
            self._rate.ratio((rate[0] * time[0] / 1000, rate[1] * time[1] / 1000), batch)
        consumed = _bounds(fields.get(b"consumed_tokens", b""))
        if consumed and iteration:
            self._total.ratio((consumed[0] / iteration, consumed[1] / iteration), batch)

    def finish(self, findings: Findings) -> None:
        line = self._devices.line
        if not line:
            return
        both = self._rate.with_(self._total)
        # Consumed tokens count only if the batch size has been constant since the first iteration.
        chosen = both if both.roundest and self._rate.roundest else self._rate
        if length := chosen.roundest:
            findings.fact("sequence_length", length, line)
            if chosen.whole is None:
                findings.remark(_NEAREST.format(length, chosen.low, chosen.high))
        self._devices.report(findings)


DIALECTS = (
    Dialect(
        name="nanotron",
        title="nanotron",
        source="huggingface/nanotron src/nanotron/trainer.py, src/nanotron/logging/base.py",
        example="01/01/2026 10:00:10 [INFO|DP=0|PP=0|TP=0]: iteration: 10 / 100 | consumed_tokens: 1.31M | "
        "elapsed_time_per_iteration_ms: 2K | tokens_per_sec: 65.5K | tokens_per_sec_per_gpu: 8.19K | global_batch_size: 64 | "
        "lm_loss: 9.12 | lr: 0.0003 | model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3 | grad_norm: 1.25",
        trap="three digits and a suffix: 1.02K is 1024 samples; the sequence length is not in the line",
        needles=(b"iteration: ",),
        parser=_Parser,
    ),
)
