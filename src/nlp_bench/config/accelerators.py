"""benchmark/accelerators.toml, and which of its entries the name of a device means: of a log exactly, of a plan by its family and form."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from nlp_bench.errors import UsageError, nearest
from nlp_bench.immutable import immutable

SCHEMA = "nlp-bench/accelerators/3"
TABLE = "benchmark/accelerators.toml"
FORMATS = ("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "fp4")  # number formats of matrix products
SHARED = {"fp8-rowwise": "fp8"}  # number formats that have the peak of another one
_VENDOR = re.compile(r"^(?:nvidia tesla|nvidia|tesla|amd instinct|amd|intel|google) ")
_MEMORY = re.compile(r"[ -]\d{2,3} ?gb?$")
_SIZE = re.compile(r"(?<![0-9])(\d{2,3}) ?gb?(?![a-z])")
_SAME_SIZE = (
    0.1  # relative difference of two statements of one memory: in GB or GiB, with or without what the driver keeps
)
_PROSE = re.compile(r"(?: (?:[a-z]+|GPUs?)[.,:;]?)*")
"""What may follow a name in a sentence; words with capitals or digits may name a variant or a slice."""


@immutable
class Memory:
    """One size that a device's memory has."""

    gib: float  # GiB
    gb_per_s: float  # 10^9 bytes per second by the data sheet


@immutable
class Accelerator:
    """One entry of the table."""

    name: str  # its name in the table
    family: str  # the short name that several variants share
    logged: tuple[str, ...]  # names as drivers and logs print them
    peak_tflops: dict[str, float]  # number format to dense 10^12 FLOP/s of one device
    source: str  # the data sheet
    checked: str = ""  # the second source that the figures were compared with; empty: none
    note: str = ""  # a remark on the figures
    generation: str = ""  # of `nlp_bench.plan.configurations.GENERATIONS`; empty: not planned
    memory: tuple[Memory, ...] = ()  # sizes of its memory
    link_gb_per_s: float | None = None  # 10^9 bytes/s that a device sends its neighbours, one way; None: not planned
    domain: int | None = None  # devices that these links join; None: those of a node
    watts: float | None = None  # maximum power

    def __post_init__(self) -> None:
        for number_format, peak in self.peak_tflops.items():
            if number_format not in FORMATS or not 0 < peak < float("inf"):
                raise UsageError(
                    f"{TABLE}: {self.name}: peak_tflops.{number_format} = {peak!r}: "
                    f"the format is one of {', '.join(FORMATS)}, the peak a number above 0"
                )


@immutable
class Peak:
    """The peak of one device in one number format."""

    tflops: float  # dense 10^12 FLOP/s
    number_format: str  # of `FORMATS`
    accelerator: str  # name of the table's entry
    source: str  # the data sheet, with remarks


@cache
def accelerators() -> tuple[Accelerator, ...]:
    """Return all entries. Raises UsageError where the table cannot be read, or two entries share a name."""
    return _entries(_tables()[0])


def _tables() -> tuple[Path, Path]:
    """Return the table that is read, and the one that nlp-bench ships."""
    from nlp_bench.config import catalog  # noqa: PLC0415  # only a log that names its device pays for it

    return catalog.table("accelerators.toml"), catalog.shipped() / TABLE


def named_table() -> str:
    """Return how messages call the table: one's own stands in for the shipped one, also where it lacks an entry."""
    path, shipped = _tables()
    return TABLE if path == shipped else f"{path}, read in place of {shipped} (copy that, and add to the copy)"


def deviations(name: str) -> tuple[str, ...]:
    """Return where the entry called `name` is not as in the table that nlp-bench ships."""
    path, shipped = _tables()
    if path == shipped:
        return ()
    own, known = (
        next((one for one in entries if one.name == name), None) for entries in (accelerators(), _entries(shipped))
    )
    if own is None or known is None:
        return (f"{path}: {name} is an entry of your own",)
    figures, others = _figures(own), _figures(known)
    return tuple(
        f"{path}: {name}: {key} = {figures.get(key, 'none')} instead of {others.get(key, 'none')}"
        for key in {**others, **figures}
        if figures.get(key) != others.get(key)
    )


def _figures(entry: Accelerator) -> dict[str, str]:
    """Return what a prediction may follow from, by the key of the table."""
    sizes = ", ".join(f"{one.gib:g} GiB at {one.gb_per_s:g} GB/s" for one in entry.memory)
    plain = {key: str(getattr(entry, key)) for key in ("generation", "link_gb_per_s", "domain", "watts")}
    peaks = {f"peak_tflops.{key}": f"{peak:g}" for key, peak in entry.peak_tflops.items()}
    return {**peaks, "memory": sizes, **plain, "logged": ", ".join(entry.logged)}


def _entries(path: Path) -> tuple[Accelerator, ...]:
    from nlp_bench.config.table import build, read_toml  # noqa: PLC0415  # as above

    table = read_toml(path, SCHEMA)
    entries = tuple(build(Accelerator, entry, f"{TABLE}: accelerator") for entry in table.get("accelerator", ()))
    taken: dict[str, str] = {}
    for entry in entries:
        for words in {_folded(words) for words in (entry.name, *entry.logged)}:
            if words in taken:
                raise UsageError(f"{TABLE}: {words!r} names both {taken[words]} and {entry.name}; keep one")
            taken[words] = entry.name
    return entries


def variants(words: str) -> tuple[Accelerator, ...]:
    """Return the entries that `words` may mean, all of a family for its short word; raises UsageError, which names the table, where there is none."""
    short = _MEMORY.sub("", product(words))
    found = (
        _longest(_names(), words)
        or tuple(entry for entry in accelerators() if _folded(entry.family) == short)
        or _longest([(product(name), entry) for name, entry in _names()], words)
    )
    if not found:
        near = nearest(words, [entry.name for entry in accelerators()], listed=False)
        raise UsageError(
            f"{words[:80]!r} is not in {named_table()}: its peak is not known; add an entry with its data sheet{near}"
        )
    return found


def peak_of(words: str, number_format: str) -> Peak:
    """Return the peak of the device that `words` name; raises UsageError where they name none, or variants with different peaks, or the format has none."""
    found = variants(words)
    peaks = {entry.name: entry.peak_tflops.get(number_format) for entry in found}
    if None in peaks.values():
        formats = ", ".join(found[0].peak_tflops)
        raise UsageError(f"{TABLE} has no {number_format} peak for {' or '.join(peaks)}, only {formats}")
    if len(set(peaks.values())) > 1:
        which = " or ".join(f"{name} ({peak:g} TFLOP/s in {number_format})" for name, peak in peaks.items())
        raise UsageError(f"{words[:80]!r} is ambiguous: {which}; say which with --gpu NAME")
    first = found[0]
    comparison = f"checked: {first.checked}" if first.checked else "not compared with a second source"
    return Peak(
        tflops=first.peak_tflops[number_format],
        number_format=number_format,
        accelerator=first.name if len(found) == 1 else f"{first.family}, all variants alike",
        source="; ".join([first.source, comparison, *([first.note] if first.note else [])]),
    )


def bound_of(words: str) -> tuple[str, float] | None:
    """Return the family that `words` name and the TFLOP/s that no device of it exceeds in any format; None where none is named."""
    found = _of_family(words)
    return (found[0].family, max(max(one.peak_tflops.values()) for one in found)) if found else None


@cache
def entry_of(words: str) -> Accelerator:
    """Return the entry of an exact name, or the variant of a named family whose form `words` have: SXM where they say none.

    A slice (MIG) is not its GPU. Raises UsageError, which names the table, for a device that it does not have.
    """
    try:
        found = variants(words)
    except UsageError:
        found = () if "mig" in _plain(words) else _of_family(words)
        if not found:
            raise
    forms = [_form(one.name) for one in found]
    wanted = next((form for form in (_form(words), "", "sxm") if form in forms), forms[0])
    return found[forms.index(wanted)]


def product_of(words: str) -> tuple[str, float | None]:
    """Return what devices of one product share, however they are spelt: the entry's name and GiB of memory, None where they are not told.

    The number of a superchip's CPU memory is none of the GPU's. A device that the table does not have is its own words.
    """
    try:
        entry = entry_of(words)
    except UsageError:
        return product(words), None
    sizes, stated = [one.gib for one in entry.memory], _SIZE.search(words.casefold())
    same = [gib for gib in sizes if stated and abs(float(stated[1]) / gib - 1) <= _SAME_SIZE]
    return entry.name, next(iter(same), sizes[0] if len(sizes) == 1 else None)


def family_of(words: str) -> str:
    """Return the name that variants of one chip share: A100 of "NVIDIA A100-SXM4-40GB"; of a device that the table does not have its first word."""
    try:
        return entry_of(words).family
    except UsageError:
        return (_plain(product(words)) or [""])[0].upper()


def is_same(one: str, other: str) -> bool:
    """Return whether two names mean one entry of the table, or, of devices that it lacks, whether one has all words of the other."""
    names = [product_of(words)[0] for words in (one, other)]
    known = {entry.name for entry in accelerators()}
    first, second = (set(_plain(name)) for name in names)
    return names[0] == names[1] or (known.isdisjoint(names) and (first <= second or second <= first))


def _of_family(words: str) -> tuple[Accelerator, ...]:
    """Return the entries of the family that `words` name anywhere, the longest one where they name several."""
    plain = f" {' '.join(_plain(words))} "
    named = [one.family for one in accelerators() if f" {' '.join(_plain(one.family))} " in plain]
    return tuple(one for one in accelerators() if one.family == max(named, key=len, default=""))


def _plain(words: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", words.casefold())


def _form(words: str) -> str:
    found = re.search(r"sxm|pcie|nvl(?![0-9a-z])", words.casefold())
    return found[0] if found else ""


def product(words: str) -> str:
    """Return a device's name in lower case without its maker: a100-sxm4-40gb of "NVIDIA A100-SXM4-40GB"."""
    return _VENDOR.sub("", _folded(words))


def _folded(words: str) -> str:
    return " ".join(words.casefold().split())


@cache
def _names() -> tuple[tuple[str, Accelerator], ...]:
    return tuple((_folded(name), entry) for entry in accelerators() for name in (entry.name, *entry.logged))


def forget() -> None:
    """Clear the caches, so that the table is read again: in a session of Python it may have been edited."""
    for cached in (accelerators, _names, entry_of):
        cached.cache_clear()


def _longest(named: Sequence[tuple[str, Accelerator]], words: str) -> tuple[Accelerator, ...]:
    """Return the entry whose name `words` are, or begin with before prose goes on; the longest name wins."""
    plain = " ".join(words.split())
    fits = [
        pair
        for pair in named
        if plain[: len(pair[0])].casefold() == pair[0] and _PROSE.fullmatch(plain[len(pair[0]) :])
    ]
    return (max(fits, key=lambda pair: len(pair[0]))[1],) if fits else ()
