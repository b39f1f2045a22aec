"""Megatron-LM and programs that kept its line: `iteration N/ M | name: value | name: value |`.

One parser reads them all; fields that only one program prints decide the name at the end. Megatron-Bridge's own line is read, too, for
logs that have lost the line of Megatron-LM that follows it. Sources: NVIDIA/Megatron-LM megatron/training/training.py (`training_log`)
and its forks, as named in DIALECTS.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nlp_bench.logs.clean import first_piece, label_of, pieces
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.dialects.megatron_facts import NEEDLES, Settings, dumped
from nlp_bench.logs.pattern import At, Pattern, PatternParser, Values, late
from nlp_bench.logs.quantity import RATES, in_unit, quantity_of
from nlp_bench.logs.scan import NUMBER, Grammar, Line


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
        "loss_scale": "loss scale",
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

_WHOLE = late(rb"\d{1,18}")
_PLAIN = re.compile(NUMBER + rb"|[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
# The current value and a running mean of it: `1460.8/1450.4`, `615.5 (avg 612.0)`.
_CURRENT = late(rb"(" + NUMBER + rb")(?:/ ?" + NUMBER + rb"| \(avg " + NUMBER + rb"\))")
# Not a torn field, but too inexact to use: `1.258B`.
_ROUNDED = late(rb"\d+(?:\.\d+)?[KMBT]")


def normal(key: bytes) -> bytes:
    """Return the key for comparison, without the blanks and `_` between its words, which a wrapped line may have moved."""
    return key.translate(None, b" \t_").lower()


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
    return Field(name, quantity_of(name)[0], program, normal(key) in _HIDING)


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


def grammar() -> Grammar:
    """Return the strict form of a clean record, for the scanner."""
    keys = {}
    for key, name in CLEAN.items():
        quantity, divisor, _ = quantity_of(name)
        keys[key] = (quantity, divisor, quantity in COUNTS)
    # A second field for a column makes the line no row, so that it goes to the parser.
    keys |= dict.fromkeys(CAREFUL, ("iteration", 1.0, False))
    return Grammar(start=b"iteration", keys=keys, required=("elapsed_s", "num_nan"), reads_stamps=True)


# ALCF's fork writes `iteration=`. The literal precedes the lookbehind, so that `re` can search for it as a prefix.
_START = late(rb"iteration(?<![\w-]iteration)(?:=|(?=\s))\s*(\d{1,18})\s*/\s*(\d{1,18})\s*\|")
_END = late(rb"nan\s?iterations\s*:\s*\d+\s*\|")
_MAX_WRAPPED = 12
_SAME = 0.005  # share by which two values of a time or a rate in one record may differ
_NO_RATE = {b"None", b"N/A"}  # printed by forks without a learning rate
_KEY = late(rb"(?:\[[A-Z]{2}\])?[\w /().,@%-]{1,64}")
_VALUE = late(rb"(?i)\s*(?:[-+]?[\d.][-+\w.%/ :()]{0,80}|nan|inf|N/A)\s*")
# GPT-NeoX prints its rate before the number of the iteration.
_RATE = late(rb"samples/sec:\s*(" + NUMBER + rb")\s*\|\s*$")
_SPEED = late(rb"speed (" + NUMBER + rb") samples/\(min\*GPU\)\s*$")
_NAMES = ("gpt-neox", "primus", "sat", "modellink", "megatron-bridge", "megatron-deepspeed")
_RANKS = late(rb"\[rank-\d+/(\d{1,18})\]")
_NOWHERE = Line(0, 0, b"", is_ended=True, following=lambda _: [])
_BRIDGE = rb"Step Time : (?P<elapsed_s>\d{1,9}\.\d{1,9})s GPU utilization: (?P<model_tflops>\d{1,9}\.\d{1,9})(?:MODEL_)?TFLOP/s/GPU"
_IS_BRIDGE = late(rb"Step Time : [\d.]+s GPU utilization: ")


class _Record(NamedTuple):
    """One record as text."""

    prefix: bytes  # text before it, back to another record on the same line
    iteration: float
    total: float  # the last iteration of the training
    body: bytes  # text after the first bar
    is_ended: bool  # False where its line feed is missing: it may be cut anywhere


def _records_in(text: bytes, line: Line, *, is_last_text: bool) -> Iterator[_Record]:
    """Yield the records that start in a text of the line; the last one may continue on the next lines."""
    starts = list(_START.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    begin = 0
    for start, end in zip(starts, ends, strict=False):
        # A record before another one on the same line lacks its line feed.
        is_last = end == len(text)
        prefix, body = text[begin : start.start()], text[start.end() : end]
        begin = max(text.rfind(b"|", start.end(), end) + 1, start.end())
        if is_last and is_last_text and line.is_ended:
            body = _unwrapped(body, line)
        yield _Record(prefix, float(start[1]), float(start[2]), body, line.is_ended and is_last)


def _key_and_text(piece: bytes) -> tuple[bytes, bytes]:
    """Return key and value of `key: value`, `key=value` or, as before 2020, `key value`."""
    for separator in (b":", b"="):
        key, found, text = piece.partition(separator)
        if found:
            return key, text
    key, _, text = piece.rstrip().rpartition(b" ")
    return key, text


class _Fields(NamedTuple):
    """The content of the complete fields of a record."""

    values: Values  # quantities in their units
    programs: set[str]  # programs that print fields which no other prints
    is_torn: bool  # whether a known field is no number
    curriculum: float
    """Sequence length where it changes during the training and is not that of the interval; NaN where it cannot be read, else 0."""


def _fields_of(finished: list[bytes]) -> _Fields:
    """Return the content of the fields before the last bar.

    Text after the last bar is no complete field: a cut number would look like a smaller one.
    """
    values: Values = {}
    programs: set[str] = set()
    is_torn, curriculum = False, 0.0
    read: set[bytes] = set()
    for piece in finished:
        key, text = _key_and_text(piece)
        field, text = field_of(key), text.strip()
        name = field.quantity
        is_other = (
            name in RATES
            and name in values
            and not math.isclose(value_of(field, text) or 0.0, values[name], rel_tol=_SAME)
        )
        if is_other or (name and normal(key) in read):
            return _Fields({}, programs, is_torn=True, curriculum=curriculum)  # two times, or the halves of two records
        read.add(normal(key))
        programs |= {field.program} - {""}
        if field.hides_length:
            curriculum = float(text) if text.isdigit() else math.nan
        if not name or name in values or (name == "consumed_tokens" and _ROUNDED.fullmatch(text)):
            continue
        value = value_of(field, text)
        if value is not None:
            values[name] = value
        elif name != "learning_rate" or text not in _NO_RATE:
            is_torn = True
    if curriculum:
        values.pop("sequence_length", None)
    return _Fields(values, programs, is_torn, curriculum)


def _unwrapped(body: bytes, line: Line) -> bytes:
    """Return the record joined with the lines on which it continues: a terminal or an editor may have wrapped it anywhere."""
    if _END.search(body) and not body.rpartition(b"|")[2].strip():
        return body
    for text in line.following(_MAX_WRAPPED):
        follower = first_piece(text)
        if _START.search(follower) or not _continues(body, follower):
            break
        body = body.rstrip() + follower
    return body


def _continues(body: bytes, follower: bytes) -> bool:
    """Say whether `follower` completes the last field of `body`, or continues with another field of a record."""
    tail = body.rpartition(b"|")[2].strip()
    key, value = _key_and_text(tail + follower.partition(b"|")[0])
    if field_of(key).name:
        return value_of(field_of(key), value) is not None
    is_field = bool(_KEY.fullmatch(key.strip()) and _VALUE.fullmatch(value))
    if tail or _END.search(body):
        return is_field and bool(tail)
    return is_field and bool(_fields_of(follower.split(b"|")).values)


class _Megatron(Parser):
    """Reads every record that the scanner does not; both read clean records alike."""

    reads_each_line = True

    def __init__(self) -> None:
        self.settings = Settings()
        self.programs: set[str] = set()
        self.num_read = 0
        self.has_nan_field = False
        self.last_consumed = (0.0, 0.0)
        self.last_end = b""

    def take(self, line: Line, findings: Findings) -> None:
        """Read records, or settings; two processes may have written into one line."""
        if b" ......" in line.text and (argument := dumped(line.text)):
            self.settings.argument(*argument, line, findings)
            return
        texts = pieces(line.text)
        for position, text in enumerate(texts, 1):
            is_record = False
            for record in _records_in(text, line, is_last_text=position == len(texts)):
                is_record = True
                self._record(record, line, findings)
            if not is_record:
                if _IS_BRIDGE.search(text):
                    self.programs.add("megatron-bridge")
                self.settings.take(text, line, findings)

    def _record(self, record: _Record, line: Line, findings: Findings) -> None:
        *finished, tail = record.body.split(b"|")
        values, programs, is_torn, curriculum = _fields_of(finished)
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
        if curriculum:  # neither the dump nor the line has the length of the interval
            last, self.last_consumed = self.last_consumed, (record.iteration, values.get("consumed_tokens", 0.0))
            steps, tokens = record.iteration - last[0], self.last_consumed[1] - last[1]
            if last[1] and steps > 0 < tokens:
                values["tokens"] = tokens / steps
        findings.record(line, values, label=label_of(prefix), is_whole=is_whole)
        self.num_read += 1

    def _is_complete(self, values: Values, tail: bytes, findings: Findings) -> bool:
        """Say whether the line ends where lines of this log end: after the NaN iterations, if they have that field."""
        self.has_nan_field |= "num_nan" in values or findings.num_records > self.num_read  # the scanner requires it
        last_end, self.last_end = self.last_end, normal(_key_and_text(tail)[0])
        is_ended = "num_nan" in values if self.has_nan_field else not tail.strip() or self.last_end == last_end
        return is_ended and "elapsed_s" in values

    def finish(self, findings: Findings) -> None:
        settings, programs = self.settings, self.programs
        settings.finish(findings)
        stated = (findings.column(name) for name in ("consumed_tokens", "sequence_length"))
        if settings.is_deepspeed or any(np.isfinite(column).any() for column in stated):
            programs.add("megatron-deepspeed")
        if name := next((name for name in _NAMES if name in programs), None):
            findings.rename(name)
        if not findings.known("num_devices"):
            _report_devices(findings)
        if settings.num_overflows:
            findings.remark(
                f"DeepSpeed skipped the update of {settings.num_overflows} step(s); the records do not count them"
            )


def _report_devices(findings: Findings) -> None:
    """Report the number of devices where the log states the rate of all and of one: their ratio, near an integer."""
    per_device, elapsed, batch = map(
        findings.column, ("tokens_per_second_per_device", "elapsed_s", "global_batch_size")
    )
    sequence = findings.column("sequence_length")
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = np.where(np.isnan(batch), findings.column("samples_per_second"), batch / elapsed)
        ratios = (
            samples * np.where(np.isnan(sequence), findings.known("sequence_length") or np.nan, sequence) / per_device
        )
    ratios = ratios[np.isfinite(ratios)]
    whole = round(float(np.median(ratios))) if len(ratios) else 0
    if whole and np.all(np.abs(ratios / whole - 1) < min(0.01, 0.1 / whole)):
        findings.fact("num_devices", whole, _NOWHERE)


class _Bridge(PatternParser):
    """Reads Megatron-LM's settings besides the records."""

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self.settings = Settings()

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        super().text(text, line, findings)
        if b"Step Time :" not in text:
            self.settings.take(text, line, findings)

    def values(self, values: Values, _at: At) -> Values:
        """Leave out the FLOP/s of a hybrid model, which are printed as 0."""
        return {name: value for name, value in values.items() if value or name != "model_tflops"}

    def finish(self, findings: Findings) -> None:
        self.settings.finish(findings)
        super().finish(findings)


DIALECTS = (
    Dialect(
        name="megatron-bridge",
        title="Megatron-Bridge, NeMo since 25.09",
        source="NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/utils/train_utils.py",
        example="Step Time : 12.50s GPU utilization: 800.0MODEL_TFLOP/s/GPU",
        trap="neither batch nor sequence length; TFLOP/s are of one GPU, and 0 for hybrid models",
        needles=(b"Step Time :", *NEEDLES),
        parser=Pattern(
            record=_BRIDGE,
            is_numbered=False,
            remark="the lines do not number their iterations: they are counted in their order",
            reads_each_line=False,
            reading=_Bridge,
        ),
        yields_to=("megatron-lm",),
    ),
    Dialect(
        name="megatron-lm",
        believes_settings=True,
        title="Megatron-LM since 2019 and forks with its words, the JUPITER suite's benchmark, MindSpeed, nlp-bench",
        source="NVIDIA/Megatron-LM megatron/training/training.py; FZJ-JSC/jubench-megatron-lm add_tflops_logging.patch",
        example=" iteration       10/    1000 | consumed samples:          960 | elapsed time per iteration (ms): 7231.0 | "
        "learning rate: 4.438000E-07 | global batch size:    96 | lm loss: 1.010967E+01 | loss scale: 4096.0 | "
        "grad norm: 178.553 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        trap="the unit is in the name, (ms) upstream and (s) in the JUPITER suite; the sequence length is not in the line",
        needles=(b"iteration", b"Step Time :", *NEEDLES),
        parser=_Megatron,
        grammar=grammar,
    ),
    # The parser of megatron-lm reads the lines of these, and reports the name at the end.
    Dialect(
        name="gpt-neox",
        title="GPT-NeoX",
        source="EleutherAI/gpt-neox megatron/logging.py",
        example=" samples/sec: 50.000 | iteration      100/  320000 | elapsed time per iteration (ms): 5120.0 | learning rate: 6.000E-06 | "
        "approx flops per GPU: 68.3TFLOPS | lm_loss: 8.123456E+00 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |",
        trap="the batch is samples/sec x time; the rate stands before the number of its iteration",
    ),
    Dialect(
        name="primus",
        title="Primus (AMD) with its Megatron back end",
        source="AMD-AGI/Primus primus/backends/megatron/patches/training_log/print_rank_last_patches.py",
        example="[20260101 10:00:00][rank-7/8][INFO ] [--------trainer.py:2560] :  iteration      100/    5000 | "
        "consumed samples:        12800 | elapsed time per iteration (ms): 4000.0/4100.0 | "
        "throughput per GPU (TFLOP/s/GPU): 500.0/490.0 | tokens per GPU (tokens/s/GPU): 32768.0/32000.0 | "
        "learning rate: 1.000000E-05 | global batch size:   128 | lm loss: 2.000000E+00 | loss scale: 1.0 | "
        "grad norm: 1.000 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        trap="two numbers in a field: the current one, then a running mean; tokens/s are of one device",
    ),
    Dialect(
        name="modellink",
        title="ModelLink and AscendSpeed (Ascend) in the versions that print `gloabl batch size`",
        source="Ascend/AscendSpeed megatron/training.py and its README",
        example=" iteration  11/50000 | consumed samples: 5632 | consumed tokens:  11534336 | elapsed time per iteration (ms):  "
        "50000.0 | learning rate:    1.500E-05 | gloabl batch size:  512 | lm loss:  1.300000E+01 | loss scale:  65536.0 | "
        "grad norm:    450.0 | actual seqlen:  2048 | number of skipped iterations: 0 | number of nan iterations:   0 | "
        "samples per second: 10.240 | TFLOPs: 160.00 |",
        trap="the batch stands under a misspelt name",
    ),
    Dialect(
        name="sat",
        title="SwissArmyTransformer",
        source="THUDM/SwissArmyTransformer sat/training/deepspeed_training.py (`report_iteration_metrics`)",
        example=" iteration      100/    6000 | elapsed time per iteration (ms): 1000.0 | learning rate 1.000E-05 | "
        "total loss 2.000000E+00 | loss 2.000000E+00 | loss scale 65536.0 |speed 240.00 samples/(min*GPU)",
        trap="the rate is of one device and per minute; most names have no colon",
    ),
    Dialect(
        name="megatron-deepspeed",
        title="Megatron-DeepSpeed (BigScience, Microsoft, ALCF, Habana), Megatron-LM under DeepSpeed",
        source="deepspeedai/Megatron-DeepSpeed and argonne-lcf/Megatron-DeepSpeed megatron/training.py",
        example=" iteration       10/   1000 | consumed samples:        15360 | consumed tokens:     31457280 | "
        "elapsed time per iteration (ms): 345000.0 | learning rate: 6.000E-06 | global batch size:  1536 | "
        "lm loss: 1.100000E+01 | loss scale: 1.0 | grad norm: 1.000 | actual seqlen:  2048 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 4.452 | "
        "tokens per gpu per second (tgs): 142.470 | TFLOPs: 153.30 |",
        trap="steps that DeepSpeed skips are not counted as skipped; early versions print samples per second too small by 1000",
    ),
)
