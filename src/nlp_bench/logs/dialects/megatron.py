"""Megatron-LM and everything that kept its line: `iteration N/ M | name: value | name: value |`.

One shape, many programs: one parser reads them all, and what only one of them prints decides the name at the end.
"""

import re

import numpy as np

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.dialects import megatron_facts
from nlp_bench.logs.dialects.megatron_keys import NUMBER, grammar, normal
from nlp_bench.logs.dialects.megatron_record import Record, fields_of, key_and_text, records_in
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.scan import Line

# GPT-NeoX prints its rate before the number of the iteration.
_RATE = re.compile(rb"samples/sec:\s*(" + NUMBER + rb")\s*\|\s*$")
_SPEED = re.compile(rb"speed (" + NUMBER + rb") samples/\(min\*GPU\)\s*$")
_NAMES = ("gpt-neox", "primus", "sat", "modellink", "megatron-bridge", "megatron-deepspeed")
_RANKS = re.compile(rb"\[rank-\d+/(\d{1,18})\]")
_NOWHERE = Line(0, 0, b"", is_ended=True, following=lambda _: [])
_STEP_TIME = re.compile(rb"Step Time : [\d.]+s GPU utilization: ")


class _Parser:
    """The careful road; the fast one reads clean records alike."""

    reads_each_line = True

    def __init__(self) -> None:
        self.settings = megatron_facts.Settings()
        self.programs: set[str] = set()
        self.num_read = 0
        self.has_nan_field = False
        self.last_end = b""
        self.last_consumed = (0.0, 0.0)

    def take(self, line: Line, findings: Findings) -> None:
        """Read records, or what else the line says; two processes may have written into one line."""
        texts = pieces(line.text)
        for position, text in enumerate(texts):
            records = records_in(text, line, is_last_text=position == len(texts) - 1)
            for record in records:
                self._record(record, line, findings)
            if not records:
                self._other(text, line, findings)

    def _other(self, text: bytes, line: Line, findings: Findings) -> None:
        if _STEP_TIME.search(text):
            self.programs.add("megatron-bridge")
        self.settings.take(text, line, findings)

    def _record(self, record: Record, line: Line, findings: Findings) -> None:
        *finished, tail = record.body.split(b"|")
        values, programs, is_torn, curriculum = fields_of(finished)
        if finished and record.is_ended and not (values or is_torn):
            return  # another program's line of this shape
        prefix = record.prefix
        if rate := _RATE.search(prefix):
            programs.add("gpt-neox")
            values.setdefault("samples_per_second", float(rate[1]))
            prefix = prefix[: rate.start()]
        if speed := _SPEED.search(tail):
            programs.add("sat")
            values["samples_per_second_per_device"] = float(speed[1]) / 60
            tail = b""
        if ranks := _RANKS.search(prefix):
            findings.fact("num_devices", int(ranks[1]), line)
        self.programs |= programs
        is_whole = record.is_ended and not is_torn and self._is_complete(values, tail, findings)
        values = {"iteration": record.iteration, "total_iterations": record.total, **values}
        findings.fact("curriculum_length", curriculum, line)
        if curriculum and (tokens := self._tokens_since_last(values)):
            values["tokens"] = tokens
        findings.record(line, values, label=label_of(prefix), is_whole=is_whole)
        self.num_read += 1

    def _tokens_since_last(self, values: dict[str, float]) -> float | None:
        """Return the tokens of an iteration while a curriculum runs: no length in dump or line is that of the interval."""
        last, self.last_consumed = self.last_consumed, (values["iteration"], values.get("consumed_tokens", 0.0))
        steps, tokens = self.last_consumed[0] - last[0], self.last_consumed[1] - last[1]
        return tokens / steps if last[1] and steps > 0 and tokens > 0 else None

    def _is_complete(self, values: dict[str, float], tail: bytes, findings: Findings) -> bool:
        """Say whether the line ends where lines of this log end: after the NaN iterations, if it has that field."""
        self.has_nan_field |= "num_nan" in values or findings.num_records > self.num_read  # the fast road wants it
        if "elapsed_s" not in values or self.has_nan_field:
            return "num_nan" in values and "elapsed_s" in values
        last_end, self.last_end = self.last_end, normal(key_and_text(tail)[0])
        return not tail.strip() or self.last_end == last_end

    def finish(self, findings: Findings) -> None:
        """Tell the program, and what the records as a whole say."""
        self.settings.finish(findings)
        programs = self.programs
        stated = (findings.column(name) for name in ("consumed_tokens", "sequence_length"))
        if self.settings.is_deepspeed or any(np.isfinite(column).any() for column in stated):
            programs.add("megatron-deepspeed")
        name = next((name for name in _NAMES if name in programs), None)
        if name:
            findings.rename(name)
        _tell_devices(findings)
        self._remark(findings)

    def _remark(self, findings: Findings) -> None:
        if self.settings.num_overflows:
            findings.remark(
                f"DeepSpeed skipped the update of {self.settings.num_overflows} step(s); the records do not count them"
            )
        if self.settings.has_microseconds:
            findings.remark(
                "this version of Megatron-LM (since January 2026) does not reset its clock after the first line:"
                " its second line holds the first iteration again and counts as warm-up"
            )


def _tell_devices(findings: Findings) -> None:
    """Tell the number of devices where the log states the rate of all and of one: their ratio, near a whole number."""
    if findings.known("num_devices"):
        return
    per_device = findings.column("tokens_per_second_per_device")
    if np.isnan(per_device).all():
        return
    elapsed, batch = findings.column("elapsed_s"), findings.column("global_batch_size")
    sequence = findings.column("sequence_length")
    with np.errstate(divide="ignore", invalid="ignore"):
        tokens = findings.column("consumed_tokens") / findings.column("consumed_samples")
        sequence = np.where(np.isnan(sequence), findings.known("sequence_length") or tokens, sequence)
        samples = np.where(np.isnan(batch), findings.column("samples_per_second"), batch / elapsed)
        ratios = samples * sequence / per_device
    ratios = ratios[np.isfinite(ratios)]
    whole = round(float(np.median(ratios))) if len(ratios) else 0
    if whole and abs(float(np.median(ratios)) - whole) < 0.1 and np.all(np.abs(ratios / whole - 1) < 0.01):
        findings.fact("num_devices", whole, _NOWHERE)


DIALECTS = (
    Dialect(
        name="megatron-lm",
        believes_settings=True,
        title="Megatron-LM since 2019 and forks with its words, the JUPITER suite's benchmark, MindSpeed, nlp-bench",
        source="NVIDIA/Megatron-LM megatron/training/training.py; FZJ-JSC/jubench-megatron-lm add_tflops_logging.patch",
        example=" iteration       10/    1000 | consumed samples:          960 | elapsed time per iteration (ms): 7231.0 | "
        "learning rate: 4.438000E-07 | global batch size:    96 | lm loss: 1.010967E+01 | loss scale: 4096.0 | "
        "grad norm: 178.553 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        trap="the unit is in the name, (ms) upstream and (s) in the JUPITER suite; the sequence length is not in the line",
        needles=(b"iteration", b"Step Time :", *megatron_facts.NEEDLES),
        parser=_Parser,
        grammar=grammar,
    ),
)
