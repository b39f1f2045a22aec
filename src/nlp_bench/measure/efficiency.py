"""How much of a machine's arithmetic a run used: FLOP/s per GPU in four countings, and their share of the peak (MFU, HFU).

MFU (model FLOPs utilisation) is from Chowdhery et al. 2022, https://arxiv.org/abs/2204.02311, appendix B, which counts full attention;
newer Megatron-LM counts the causal half. Both are given. HFU (hardware FLOPs utilisation) counts what was executed, recompute included.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nlp_bench.config.accelerators import Peak, entry_of, peak_of, variants
from nlp_bench.errors import NlpBenchError
from nlp_bench.immutable import immutable
from nlp_bench.layout.flops import hardware_flops_per_token, legacy_flops_per_iteration, model_flops_per_token
from nlp_bench.layout.shape import ModelShape
from nlp_bench.measure import Json, Texts
from nlp_bench.measure.shape import Shaped, shaped
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason

if TYPE_CHECKING:
    from nlp_bench.measure.result import RunResult

COUNTS = {
    "model": f"model, {ModelShape.counted}",
    "model_full_attention": "model, full attention (PaLM, Narayanan 2021)",
    "hardware": "hardware, with the recompute that ran",
    "legacy": "legacy x4/3 count of the published tables",
}
"""The four countings, by their names in the fields, of a GPT."""
SAME = 0.02  # two FLOP/s that differ by no more than this share are called the same
LEAST_FLOPS = 6  # floating-point operations per parameter and token of a training step, at least (Kaplan et al. 2020)
_DIGITS = 0.005  # half of the last digit that logs print of a TFLOP/s


def words_of(known: Shaped) -> dict[str, str]:
    """Return `COUNTS` in the words of the shape's own family."""
    return {**COUNTS, "model": f"model, {known.shape.counted}"} if known.shape else COUNTS


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


def stated_countings(entry: "RunResult", shape: Shaped) -> Iterator[str]:
    """Say for each FLOP/s that the log prints which counting it is: by its last line that also has a time."""
    known = {name: flops for name, flops in flops_per_token(shape).items() if flops}
    for field, words in (("tflops", "TFLOPs"), ("model_tflops", "model TFLOP/s")):
        for record in reversed(entry.records[-3:]):
            tokens = record.tokens or (record.global_batch_size or 0) * (entry.sequence_length or 0)
            stated = getattr(record, field)
            said = f"the log's {words} {stated or 0:g} (line {record.line_number})"
            if stated and not (known and entry.num_gpus):
                yield f"{said} is shown as stated: its counting is unknown"
                break
            if stated and tokens and record.elapsed_s and entry.num_gpus:
                scale = tokens / record.elapsed_s / entry.num_gpus / 1e12
                yield _which(said, stated, known, scale, words_of(shape))
                break


def _which(words: str, stated: float, known: dict[str, float], scale: float, counts: dict[str, str]) -> str:
    """Name the counting that gives `stated`, the nearest of those within `SAME`."""
    if stated * SAME < _DIGITS:
        return f"{words} has too few digits to tell its counting"
    off = {name: flops * scale / stated - 1 for name, flops in known.items()}
    nearest = min(off, key=lambda name: abs(off[name]))
    if abs(off[nearest]) > SAME:
        ours = ", ".join(f"{name.replace('_', ' ')} {flops * scale:.4g}" for name, flops in known.items())
        return f"{words} is none of the counts ({ours}), the nearest is {100 * off[nearest]:+.1f} % off"
    others = [name for name in off if name != nearest and abs(off[name] - off[nearest]) < _DIGITS / stated]
    also = "".join(f" (and the {name.replace('_', ' ')} count, which is the same here)" for name in others)
    return f"{words} is the count: {counts[nearest]}{also}; it differs by {100 * abs(off[nearest]):.2f} %"


@immutable
class Given:
    """What the command line says of the accelerators; it overrides the log. Raises UsageError for a GPU that the table of peaks does not know."""

    gpu: str | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        if self.gpu is None:
            return
        name = self.meant
        common = set.intersection(*(set(each.peak_tflops) for each in variants(name)))
        for number_format in [self.precision] if self.precision else sorted(common):
            peak_of(name, number_format)

    @property
    def meant(self) -> str:
        """The GPU whose peak is taken; of variants with different peaks the SXM one."""
        words = self.gpu or ""
        first, *others = (each.peak_tflops for each in variants(words))
        return words if all(each == first for each in others) else entry_of(words).name

    @property
    def choice(self) -> str:
        """Say in one line which of several variants a short name is taken as; empty without a choice."""
        if self.gpu is None or self.meant == self.gpu:
            return ""
        others = ", ".join(each.name for each in variants(self.gpu) if each.name != self.meant)
        return f"--gpu {self.gpu} is taken as {self.meant}; for the peak of another one name it: {others}"


NOTHING_GIVEN = Given()


@immutable
class Efficiency:
    """FLOP/s per GPU of one run, in 10^12 per second, and shares of the peak between 0 and 1; None where it cannot be told."""

    tokens_per_second: float  # the rate that they are computed from, of the whole machine
    rate: str  # which rate that is: steady or reference
    num_gpus: int | None
    shaped: Shaped  # the model and the recompute as they were understood
    model_tflops_per_gpu: float | None = None  # model FLOPs with causal attention counted as half
    model_tflops_full_attention_per_gpu: float | None = None
    hardware_tflops_per_gpu: float | None = None  # FLOPs that were executed, recompute included
    legacy_tflops_per_gpu: float | None = None  # by the formula of the published tables
    mfu: float | None = None  # model FLOPs utilisation, causal attention counted as half
    hfu: float | None = None  # hardware FLOPs utilisation
    mfu_full_attention: float | None = None  # model FLOPs utilisation by PaLM's definition, full attention
    flops_per_token: Mapping[str, float | None]  # by the names of `COUNTS`
    peak: Peak | None = None  # what one device can do in the run's number format
    why_not: Texts = ()  # one sentence per thing that is missing
    assumed: Texts = ()  # a sentence per thing that was concluded, or said by a person against the log
    stated: Texts = ()  # which counting the FLOP/s are that the log itself prints

    def cells(self) -> dict[str, float | None]:
        """Return the columns of a report."""
        return {name: getattr(self, name) for name in COLUMNS}

    def to_json(self) -> Json:
        """Return the object `efficiency` of a run in nlp-bench/report/1."""
        return {
            **self.cells(),
            "rate": self.rate,
            "flops_per_token": dict(self.flops_per_token),
            "num_parameters": self.shaped.shape.parameters if self.shaped.shape else None,
            "peak": dict(vars(self.peak)) if self.peak else None,
            **{name: list(getattr(self, name)) for name in ("why_not", "assumed", "stated")},
        }


def field_of(name: str) -> str:
    """Return the field of Efficiency that holds the count of this name (of `COUNTS`)."""
    return "model_tflops_full_attention_per_gpu" if name == "model_full_attention" else f"{name}_tflops_per_gpu"


COLUMNS = (*map(field_of, COUNTS), "mfu", "hfu", "mfu_full_attention")  # of a report


def efficiency_of(entry: "RunResult") -> Efficiency | None:
    """Return the efficiency of a run; None where it has no rate, and so no number at all."""
    rate = entry.rate
    if not rate:
        return None
    known = shaped(entry.workload, entry.sequence_length)
    why_not = list(known.why_not)
    if not entry.num_gpus:
        why_not.append("no FLOP/s per GPU: the number of GPUs is not known (give --num-gpus N)")
    per_token = flops_per_token(known)
    per_gpu = {
        field_of(name): None if flops is None or not entry.num_gpus else flops * rate / entry.num_gpus / 1e12
        for name, flops in per_token.items()
    }
    peak = None
    if known.shape and entry.num_gpus:
        try:
            peak = _peak(entry)
        except NlpBenchError as error:
            why_not.append(f"no MFU and HFU: {error}")
    executed = max(per_gpu[field_of(name)] or 0.0 for name in ("model", "hardware"))
    if peak and executed > peak.tflops:
        why_not.append(
            f"no MFU and HFU: {executed:.4g} TFLOP/s per GPU is more than the peak of {peak.tflops:g} ({peak.accelerator}, "
            f"{peak.number_format}): the device, the number format, the number of GPUs or the shape is not the one that ran"
        )
        peak = None

    def share(name: str) -> float | None:
        tflops = per_gpu[field_of(name)]
        return tflops / peak.tflops if tflops is not None and peak else None

    given = ((name, value, entry.workload.setting(name)) for name, value in vars(entry.given).items() if value)
    overridden = (
        f"--{name} {value} is used although {logged.source} says {str(logged.value)[:80]!r}"
        for name, value, logged in given
        if logged and logged.value != value
    )
    return Efficiency(
        tokens_per_second=rate,
        rate="steady" if entry.steady else "reference",
        num_gpus=entry.num_gpus,
        shaped=known,
        flops_per_token=per_token,
        mfu=share("model"),
        hfu=share("hardware"),
        mfu_full_attention=share("model_full_attention"),
        peak=peak,
        why_not=tuple(why_not),
        assumed=(*known.assumed, *overridden, *filter(None, [entry.given.choice])),
        stated=tuple(stated_countings(entry, known)),
        **per_gpu,
    )


def with_given(entries: Iterable["RunResult"], given: Given) -> "list[RunResult]":
    """Return the entries with what the command line says of the accelerators; one that they cannot have reached is refused."""
    return [_possible(replace(entry, given=given)) for entry in entries] if given != NOTHING_GIVEN else list(entries)


def _possible(entry: "RunResult") -> "RunResult":
    """Return `entry`, without its number where it is more than the accelerator that a person names can do."""
    found = entry.efficiency if entry.throughput else None
    if not entry.given.gpu or not found or not found.num_gpus:
        return entry
    executed = max(found.model_tflops_per_gpu or 0.0, found.hardware_tflops_per_gpu or 0.0)
    if not executed and (parameters := entry.workload.count("num_parameters")):
        executed = LEAST_FLOPS * parameters * found.tokens_per_second / found.num_gpus / 1e12
    every = variants(entry.given.gpu)
    peak = max(tflops for each in every for tflops in each.peak_tflops.values())
    said = [each.words for each in entry.supplied if each.name not in {"pattern", "precision"}]
    if executed <= peak or not said:
        return entry
    why = (
        f"{found.tokens_per_second:.2f} tokens/s on {found.num_gpus} GPU(s) are {executed:.4g} TFLOP/s per GPU, more than the {peak:g} that "
        f"{every[0].name} reaches in any number format; correct or leave out: {', '.join(said)}"
    )
    return replace(entry.without_number(Outcome.REFUSED, Reason("implausible", f"implausible: {why}")), rules=None)


def _peak(entry: "RunResult") -> Peak:
    """Return the peak by the device and the number format; raises NlpBenchError that says why it cannot be told."""
    if entry.accelerator == "cpu" or entry.workload.value("accelerator") == "cpu":
        raise NlpBenchError("the ranks ran on CPUs, which have no peak here")
    gpu = entry.given.meant if entry.given.gpu else entry.workload.value("gpu")
    precision = entry.given.precision or entry.workload.value("precision")
    missing = {
        "the name of the GPU is not known (give --gpu NAME)": gpu,
        "the number format is not known (give --precision FORMAT)": precision,
    }
    if lacking := [words for words, value in missing.items() if not value]:
        raise NlpBenchError(", and ".join(lacking))
    # Our trainer never lets torch round fp32 to TF32; another may, where that is faster.
    is_open = precision == "fp32" and not entry.given.precision and not entry.workload.is_of_run
    peaks = (each.peak_tflops for each in variants(str(gpu)))
    if is_open and any(each.get("tf32", 0) > each.get("fp32", 0) for each in peaks):
        raise NlpBenchError(
            "the log says fp32 and not whether the matrix products ran in TF32 (give --precision fp32 or tf32)"
        )
    return peak_of(str(gpu), str(precision))
