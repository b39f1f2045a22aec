"""Data sheets for planning: the optional columns of benchmark/accelerators.toml, found by the words that people and tables use."""

import re
from dataclasses import dataclass

from nlp_bench.config.accelerators import TABLE, Accelerator, accelerators, variants
from nlp_bench.errors import UsageError

_POWER = re.compile(r"(?<![0-9])(\d{3,4}) ?W\b", re.IGNORECASE)
_CLOCK_OF_POWER = 0.4
"""Clock falls with the power limit to about this power: dynamic power is frequency x voltage^2, and voltage falls with frequency."""
_SAME = {"mxfp8": "fp8", "fp8-rowwise": "fp8"}
"""Number formats that share a peak."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What the planner takes from a data sheet, in base units, one direction."""

    name: str
    """Name in the table."""
    generation: str
    """Of GENERATIONS."""
    half_flops: float
    """FLOP/s in bf16 (or fp16): attention and the output layer are not done in fewer bits."""
    peak_flops: float
    """FLOP/s in the number format of the products."""
    memory_bytes_per_s: float
    """Bandwidth of the memory."""
    memory_gib: float
    """Size of the memory."""
    link_bytes_per_s: float
    """NVLink of one GPU."""
    domain: int | None
    """GPUs that NVLink joins; None: those of a node."""


_SAME_SHEET = 0.05
"""Of memory and peak: a GiB more or less, a clock as rounded by somebody else."""


def sheet_of(words: str, precision: str, memory_gib: float | None = None) -> Sheet:
    """Return the data sheet of the GPU that `words` name, with the memory size nearest to `memory_gib`.

    "500W" in the words is a power limit below the data sheet's. Raises UsageError, with the lines to add, for a GPU that the table
    does not have or of which it does not say how fast its memory and links are.
    """
    entry = _entry(words)
    if not entry.memory or entry.link_gb_per_s is None or not entry.generation:
        missing = "generation, memory and link_gb_per_s"
        raise UsageError(f"{TABLE}: {entry.name} has no {missing}, which planning needs; add them:\n{_LINES}")
    memory = min(entry.memory, key=lambda one: abs(one.gib - (memory_gib or one.gib)))
    clock = _clock(words, entry.watts)
    return Sheet(
        name=entry.name,
        generation=entry.generation,
        half_flops=clock * _peak(entry, "fp32" if precision == "fp32" else "bf16"),
        peak_flops=clock * _peak(entry, _SAME.get(precision, precision)),
        memory_bytes_per_s=memory.gb_per_s * 1e9,
        memory_gib=memory.gib,
        link_bytes_per_s=entry.link_gb_per_s * 1e9,
        domain=entry.domain,
    )


def against_sheet(name: str, memory_gib: float, peak_bf16_tflops: float) -> tuple[str, ...]:
    """Return what a system file says of its GPU that is more than 5 % beside the data sheet, and which of the two is taken.

    Raises UsageError for a GPU that the table does not have.
    """
    sheet = sheet_of(name, "bf16", memory_gib)
    stated = {
        "memory_gib": (memory_gib, sheet.memory_gib, "the prediction believes the system file"),
        "peak_bf16_tflops": (
            peak_bf16_tflops,
            sheet.peak_flops / 1e12,
            "the prediction takes the data sheet's; is it the sparse one?",
        ),
    }
    return tuple(
        f"system.gpu.{key}: {value:g}, but {sheet.name} has {known:g} in {TABLE}; {taken}"
        for key, (value, known, taken) in stated.items()
        if abs(value / known - 1) > _SAME_SHEET
    )


def unknown_gpu(words: str) -> str:
    """Return what to say of a GPU that the table does not have."""
    return f"{words[:80]!r} is not in {TABLE}, so that nothing can be predicted for it; describe it from its data sheet:\n{_LINES}"


_LINES = """  [[accelerator]]
  name = "VENDOR NAME"
  family = "NAME"
  logged = ["NAME AS THE DRIVER PRINTS IT"]
  peak_tflops = { bf16 = 0, fp16 = 0, fp8 = 0 }   # dense
  generation = "other"                            # or ampere, hopper, blackwell: whose efficiencies it has
  memory = [{ gib = 0, gb_per_s = 0 }]
  link_gb_per_s = 0                               # one direction
  source = "DATA SHEET\""""


def _entry(words: str) -> Accelerator:
    """Return the entry of exact words, or of the family that the words begin with: the SXM part unless they say another."""
    try:
        found = variants(words)
    except UsageError:
        found = _of_family_word(words)
    if not found:
        raise UsageError(unknown_gpu(words))
    told = [one for one in found if _form(one.name) and _form(one.name) == _form(words)]
    usual = [one for one in found if _form(one.name) in {"", "sxm"}]
    return (told or usual or list(found))[0]


def _of_family_word(words: str) -> tuple[Accelerator, ...]:
    plain = " ".join(re.split(r"[^a-z0-9]+", words.casefold()))
    families = {one.family for one in accelerators()}
    named = [one for one in families if re.search(rf"(?<![a-z0-9]){re.escape(one.casefold())}(?![0-9a-z])", plain)]
    if not named:
        return ()
    longest = max(named, key=len)
    return tuple(one for one in accelerators() if one.family == longest)


def _form(words: str) -> str:
    found = re.search(r"sxm|pcie|nvl(?![0-9a-z])", words.casefold())
    return found[0] if found else ""


def _peak(entry: Accelerator, number_format: str) -> float:
    peaks = entry.peak_tflops
    value = peaks.get(number_format) or (peaks.get("fp16") if number_format == "bf16" else None)
    if value is None:
        raise UsageError(f"{TABLE} has no {number_format} peak for {entry.name}, only {', '.join(peaks)}")
    return value * 1e12


def _clock(words: str, watts: float | None) -> float:
    limit = _POWER.search(words)
    if not limit or not watts or float(limit[1]) >= watts:
        return 1.0
    return float((float(limit[1]) / watts) ** _CLOCK_OF_POWER)
