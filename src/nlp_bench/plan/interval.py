"""The 90 % interval: how much wider it is, the farther a configuration is from the rows that the constants were fitted on."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nlp_bench.config.system import FABRICS
from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import GENERATIONS, PRECISIONS, Codes, Configurations, Flags, Framework, Numbers

SIZES = {
    "billion_parameters": "model size in 10^9 parameters of its layers",
    "gpus": "number of GPUs",
    "sequence": "sequence length",
    "context": "context-parallel size",
    "tensor": "tensor-parallel size",
    "micro_batch": "micro batch size",
    "gbit_per_gpu": "network of a GPU in Gbit/s",
}
"""Sizes whose fitted range is kept, and how messages name them."""
KINDS = {"megatron": "3d", "nvidia": "3d", "eager": "eager", "xla": "xla"}
"""Framework family to the kind that shares its kernels: NeMo is built of megatron-core's."""
KIND_NAMES = ("3d", "eager", "xla")
TERMS = ("maker", "chip", "family", "format", "fabric", "size")
"""Kinds of distance; each widens either end of the interval by a logarithm, and the squares add up."""
CHIPS = np.array([name.split()[0] for name in GENERATIONS])  # of each generation: that of blackwell ultra is blackwell
_HALF = ("bf16", "fp16")  # number formats with one constant


@immutable
class Term:
    """What one kind of distance adds, as logarithms of factors on the time; for `size`, per factor of two outside the range."""

    below: float  # to the lower end
    above: float  # to the upper end
    source: str  # where it comes from


@immutable
class Seen:
    """The fitted rows of one kind of framework on one chip."""

    kind: str
    chip: str  # ampere, hopper, blackwell: first word of a generation
    rows: int
    sources: int  # from how many sources
    formats: tuple[str, ...]
    fabrics: tuple[str, ...]  # of FABRICS; nvlink-domain: no traffic left the NVLink domain
    ranges: dict[str, tuple[float, ...]]  # least and greatest of each of SIZES


@immutable
class Reach:
    """What was fitted, and what a distance from it costs: tables [distance] and [[seen]] of benchmark/plan.toml."""

    seen: Sequence[Seen]  # by family and chip
    terms: Mapping[str, Term]  # by TERMS

    @cached_property
    def _fabrics(self) -> Flags:
        """Whether rows of each fabric were fitted, on any GPU, shape [FABRICS]; what no source names counts as fitted."""
        fitted = {"unknown", *(fabric for one in self.seen for fabric in one.fabrics)}
        return np.array([one in fitted for one in FABRICS])

    @cached_property
    def _known(self) -> tuple[Any, Any, dict[str, Any]]:
        """Sources of the fitted rows [kinds, gpus], formats [gpus, precisions], and ranges in octaves [kinds, gpus, 2] of each size."""
        cells = np.zeros((len(KIND_NAMES), len(GENERATIONS)), dtype=np.int64)
        formats = np.zeros((len(GENERATIONS), len(PRECISIONS)), dtype=np.bool_)
        whole = {
            name: (min(one.ranges[name][0] for one in self.seen), max(one.ranges[name][1] for one in self.seen))
            for name in SIZES
        }
        ranges = {name: np.broadcast_to(np.log2(whole[name]), (*cells.shape, 2)).copy() for name in SIZES}
        for one in self.seen:
            for place in np.flatnonzero(one.chip == CHIPS):
                cells[KIND_NAMES.index(one.kind), place] = one.sources
                formats[place] |= [_same(name) in map(_same, one.formats) for name in PRECISIONS]
                for name in SIZES:
                    ranges[name][KIND_NAMES.index(one.kind), place] = np.log2(one.ranges[name])
        return cells, formats, ranges

    def distance(
        self, c: Configurations, traits: Sequence[Framework], unknown: Flags | None = None
    ) -> tuple[dict[str, Flags], dict[str, Numbers]]:
        """Return how N configurations differ from the fitted rows; `unknown` marks those of an unknown framework.

        Whether no GPU of this maker was fitted at all, no row of this kind of framework on this chip, rows of a single source only,
        (where the chip was) no row of this number format, and no row of this fabric; and the factors of two by which each of SIZES is
        outside the fitted range.
        """
        cells, formats, ranges = self._known
        kind, gpu = kind_of(traits)[c.framework], c.machines.gpu
        octaves = {}
        for name, value in sizes_of(c).items():
            low, high = np.moveaxis(ranges[name][kind, gpu], -1, 0)
            octaves[name] = np.maximum(0.0, np.maximum(low - np.log2(value), np.log2(value) - high))
        maker, sources = np.asarray(~cells.any(axis=0)[gpu]), cells[kind, gpu]
        return {
            "maker": maker,
            "chip": np.asarray(sources == 0),
            "single": np.asarray(sources == 1),
            "unknown": np.asarray(False if unknown is None else unknown),
            "format": np.asarray(~maker & ~formats[gpu, c.precision]),
            "fabric": np.asarray(~self._fabrics[fabric_of(c)]),
        }, octaves

    def widened(
        self,
        c: Configurations,
        traits: Sequence[Framework],
        ends: tuple[Numbers, Numbers],
        unknown: Flags | None = None,
    ) -> tuple[Numbers, Numbers]:
        """Return the interval's ends (factors on the time) with what the distance adds to their squared logarithms."""
        far, octaves = self.distance(c, traits, unknown)
        counts = {**far, "family": far["single"] | far["unknown"], "size": sum(octaves.values(), np.zeros(()))}
        below, above = (
            sum(getattr(self.terms[name], side) ** 2 * counts[name] for name in TERMS) for side in ("below", "above")
        )
        low, high = ends
        return np.exp(-np.sqrt(np.log(low) ** 2 + below)), np.exp(np.sqrt(np.log(high) ** 2 + above))

    def reasons(self, c: Configurations, traits: Sequence[Framework], unknown: Flags | None = None) -> list[list[str]]:
        """Return, for each of N configurations, a sentence per difference from the fitted rows."""
        (flags, octaves), ranges = self.distance(c, traits, unknown), self._known[2]
        gpu, precision, kinds, fabric = (
            np.broadcast_to(values, len(c))
            for values in (c.machines.gpu, c.precision, kind_of(traits)[c.framework], c.machines.fabric)
        )
        flags["chip"] = flags["chip"] & ~flags["maker"]
        far = {name: np.broadcast_to(where, len(c)) for name, where in (flags | octaves).items()}
        values = {name: np.broadcast_to(numbers, len(c)) for name, numbers in sizes_of(c).items()}
        found = []
        for place in range(len(c)):
            chip, kind, of = CHIPS[gpu[place]], kinds[place], KIND_NAMES[kinds[place]]
            texts = {
                "maker": "GPU: none of this maker was fitted, neither its share of the data sheet nor its libraries",
                "chip": f"framework: none of this kind ({of}) was fitted on {chip}",
                "unknown": f"framework: none that is known, predicted as another of its kind ({of})",
                "single": f"framework: its kind ({of}) was fitted on {chip} of one source only",
                "format": f"number format: {PRECISIONS[precision[place]]} was not fitted on {chip}",
                "fabric": f"fabric: {FABRICS[fabric[place]]} was not fitted, predicted as InfiniBand",
            }
            for name, words in SIZES.items():
                low, high = 2.0 ** ranges[name][kind, gpu[place]]
                texts[name] = f"{words}: {values[name][place]:.6g}, fitted are {low:.6g} to {high:.6g}"
            found.append([text for name, text in texts.items() if far[name][place] > _ROUNDING])
        return found


_ROUNDING = 0.01


def sizes_of(c: Configurations) -> dict[str, Numbers]:
    """Return SIZES of N configurations."""
    n, s, m = c.network, c.spread, c.machines
    return {
        "billion_parameters": n.num_layers * n.layer_weights / 1e9,
        "gpus": s.num_gpus,
        "sequence": n.sequence_length,
        "context": s.context,
        "tensor": s.tensor,
        "micro_batch": s.micro_batch_size,
        "gbit_per_gpu": 8 * m.fabric_bytes_per_s / m.gpus_per_node / 1e9,
    }


def fabric_of(c: Configurations) -> Codes:
    """Return the index in FABRICS of what joins the GPUs: nvlink-domain where no traffic leaves the NVLink domain."""
    alone = c.spread.num_gpus <= c.machines.domain
    return np.asarray(np.where(alone, FABRICS.index("nvlink-domain"), c.machines.fabric))


def kind_of(traits: Sequence[Framework]) -> Codes:
    """Return the position in KIND_NAMES of each framework."""
    return np.array([KIND_NAMES.index(KINDS[one.family]) for one in traits])


def _same(name: str) -> str:
    return "16 bit" if name in _HALF else name
