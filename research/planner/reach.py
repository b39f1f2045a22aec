"""How much wider the interval is away from the fitted rows: learned by leaving out whole sources, chips, families, formats, fabrics, sizes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.config.system import FABRICS
from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import FAMILIES, PRECISIONS, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.interval import CHIPS, KIND_NAMES, Reach, Seen, Term, fabric_of, kind_of, sizes_of
from research.planner.data import Measured
from research.planner.validate import SHARE, Ends, Held, family_ends, held_by, quantile, residuals

_ENDS = (0.3, 0.7)  # shares of a cell's rows beyond which the small and the large of a size are left out
_LEAST = 15  # rows that are worth leaving out, or fitting on


@immutable
class LeftOut(Held):
    """Rows of one kind that a fit has not seen; arrays of shape [rows]."""

    kind: str  # a source, a chip, a family on a chip, a format on a chip, or ends of sizes
    errors: Numbers  # logarithm of measured / predicted
    reach: Reach  # what the fit had seen


@immutable
class Intervals:
    """What makes the 90 % interval."""

    shared: Ends  # near the fitted rows, of all framework families together
    ends: dict[str, Ends]  # the same by framework family
    terms: dict[str, Term]  # what distances add
    reach: Reach  # the same with what was fitted
    found: list[LeftOut]  # what they were learned from


@immutable
class FamilyCoverage:
    """Of the rows of one framework family that fits had not seen."""

    family: str
    rows: int  # how many rows the table has
    sources: int  # from how many sources
    share: float  # inside the ends of the family


def family_coverages(
    measured: Measured, constants: Constants, ends: Mapping[str, Ends], held: Sequence[Held]
) -> list[FamilyCoverage]:
    """Return how many held-out rows of each framework family its ends hold, near the fitted rows."""
    places, errors = residuals(measured, held)
    of, found = families(measured, constants), []
    for family in (one for one in FAMILIES if one in of):
        low, high = np.log([ends[family].low, ends[family].high])
        own = errors[of[places] == family]
        found.append(
            FamilyCoverage(
                family=family,
                rows=int(np.count_nonzero(of == family)),
                sources=len(np.unique(measured.sources[of == family])),
                share=float(np.mean((own >= low) & (own <= high))),
            )
        )
    return found


@immutable
class Coverage:
    """Of the rows of one kind that fits had not seen."""

    kind: str  # of LeftOut
    rows: int  # how many
    near: float  # share inside the ends without any distance
    wide: float  # share inside the interval
    low: float  # median of its lower ends
    high: float  # median of its upper ends


def intervals(measured: Measured, constants: Constants, fitted: Constants) -> Intervals:
    """Learn the interval; about forty fits, half a minute."""
    found = list(left_out(measured, constants))
    sources = [one for one in found if one.kind == SOURCE]
    shared, ends = family_ends(measured, families(measured, constants), sources)
    terms = _terms_of(measured, constants, fitted, shared, found)
    return Intervals(shared=shared, ends=ends, terms=terms, reach=reach_of(measured, constants, terms), found=found)


def families(measured: Measured, constants: Constants) -> npt.NDArray[Any]:
    """Return the framework family of each row."""
    return np.asarray(constants.trait("family")[measured.configurations.framework])


def left_out(measured: Measured, constants: Constants) -> Iterator[LeftOut]:
    """Fit without each part of each kind."""
    for kind, mask in _parts(measured, constants):
        rows = int(np.count_nonzero(mask))
        if rows and len(measured) - rows >= _LEAST:
            held = held_by(_unnamed(measured, mask) if kind == FABRIC else measured, constants, ~mask)
            _, errors = residuals(measured, [held])
            yield LeftOut(**vars(held), kind=kind, errors=errors, reach=reach_of(measured.take(~mask), constants))


def _unnamed(measured: Measured, mask: npt.NDArray[np.bool_]) -> Measured:
    """Return the rows with those of the mask on a fabric that nothing says, as which one that was not fitted is predicted."""
    c = measured.configurations
    fabric = np.where(mask, FABRICS.index("unknown"), c.machines.fabric)
    return replace(measured, configurations=replace(c, machines=replace(c.machines, fabric=fabric)))


def _parts(measured: Measured, constants: Constants) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    c = measured.configurations
    chip = CHIPS[c.machines.gpu].astype(object)
    family = families(measured, constants).astype(object)
    number_format = np.array(PRECISIONS)[c.precision].astype(object)
    labels = {
        SOURCE: measured.sources.astype(object),
        "a chip": chip,
        FAMILY: family,
        "a framework family on a chip": family + " " + chip,
        FORMAT: number_format + " " + chip,
    }
    fabric = np.array(FABRICS)[fabric_of(c)]
    yield from ((FABRIC, fabric == one) for one in sorted(set(fabric) - {"nvlink-domain", "unknown"}))
    for kind, label in labels.items():
        yield from ((kind, np.asarray(label == one)) for one in sorted(set(label)))
    cells = family + " " + chip
    for values in sizes_of(c).values():
        full = np.broadcast_to(values, (len(c),))
        for share in _ENDS:
            limit = {one: np.quantile(full[cells == one], share) for one in set(cells)}
            limits = np.array([limit[one] for one in cells])
            mask = full < limits if share < _ENDS[1] else full > limits
            if np.count_nonzero(mask) >= _LEAST:
                yield SIZE, mask


SOURCE, FAMILY, FORMAT, FABRIC, SIZE = (
    "a source", "a framework family", "a number format on a chip", "a fabric", "small or large sizes",
)  # fmt: skip


def reach_of(measured: Measured, constants: Constants, terms: dict[str, Term] | None = None) -> Reach:
    """Return what rows cover, by kind of framework and chip, with the committed terms unless others are given."""
    c, count = measured.configurations, (len(measured),)
    kind = np.broadcast_to(kind_of(constants.traits)[c.framework], count)
    chip = CHIPS[np.broadcast_to(c.machines.gpu, count)]
    words = np.array(PRECISIONS)[np.broadcast_to(c.precision, count)]
    fabric = np.array(FABRICS)[np.broadcast_to(fabric_of(c), count)]
    sizes = {name: np.broadcast_to(values, count) for name, values in sizes_of(c).items()}
    seen = [
        Seen(
            kind=name,
            chip=str(one),
            rows=int(np.count_nonzero(rows)),
            sources=len(np.unique(measured.sources[rows])),
            formats=tuple(sorted({str(word) for word in words[rows]})),
            fabrics=tuple(sorted({str(word) for word in fabric[rows]} - {"unknown"})),
            ranges={size: (float(values[rows].min()), float(values[rows].max())) for size, values in sizes.items()},
        )
        for place, name in enumerate(KIND_NAMES)
        for one in dict.fromkeys(CHIPS)
        if (rows := (kind == place) & (chip == one)).any()
    ]
    return Reach(seen=seen, terms=terms or (constants.reach.terms if constants.reach else {}))


def _terms_of(
    measured: Measured, constants: Constants, fitted: Constants, ends: Ends, found: list[LeftOut]
) -> dict[str, Term]:
    """Return what each kind of distance adds to the ends."""
    from scipy import stats  # noqa: PLC0415  # fitting only

    shares = [fitted[f"products_{chip}"] for chip in ("ampere", "hopper", "blackwell")]
    shares.append(shares[-1] * fitted["blackwell_ultra"])
    count = len(shares)
    spread = float(np.std(np.log(shares), ddof=1) * np.sqrt(1 + 1 / count) * stats.t.ppf((1 + SHARE) / 2, count - 1))
    said = (
        f"the shares of the 16-bit peak of {count} generations scatter by {np.std(np.log(shares), ddof=1):.3f} (logarithm): the 90 % "
        f"range of one more, Student's t with {count - 1} degrees of freedom"
    )
    chip = Term(below=spread, above=spread, source=said)
    base = [abs(float(np.log(end))) for end in (ends.low, ends.high)]
    return {
        "maker": replace(chip, source="as much again, for the libraries of another maker: nothing was fitted there"),
        "chip": chip,
        "family": _beyond(measured, base, found, FAMILY, "rows of each framework family, left out: beyond the ends"),
        "format": _beyond(
            measured, base, found, FORMAT, "rows of each number format on each chip, left out: beyond the ends"
        ),
        "fabric": _beyond(measured, base, found, FABRIC, "rows of each fabric, left out: beyond the ends"),
        "size": _size(measured, constants, found),
    }


def _beyond(measured: Measured, base: list[float], found: list[LeftOut], kind: str, source: str) -> Term:
    """Return by how much the errors of one kind go beyond those of sources left out."""
    own = [one for one in found if one.kind == kind]
    errors = np.concatenate([one.errors for one in own] or [np.zeros(1)])
    weights = np.concatenate([measured.weights()[one.places] for one in own] or [np.ones(1)])
    sides = [
        max(sign * quantile(errors, weights, share), near)
        for sign, share, near in zip((-1, 1), ((1 - SHARE) / 2, (1 + SHARE) / 2), base, strict=True)
    ]
    below, above = (float(np.sqrt(far**2 - near**2)) for far, near in zip(sides, base, strict=True))
    return Term(below=below, above=above, source=source)


def _size(measured: Measured, constants: Constants, found: list[LeftOut]) -> Term:
    """Return what a factor of two outside of the fitted sizes adds: by how much errors farther out than one go beyond nearer ones."""
    sides: list[list[float]] = [[], []]
    for one in (part for part in found if part.kind == SIZE):
        _, octaves = one.reach.distance(measured.configurations.take(one.places), constants.traits)
        away, weights = np.asarray(sum(octaves.values())), measured.weights()[one.places]
        out = away > 1
        if min(np.count_nonzero(out), np.count_nonzero(~out)) < _FEW:
            continue
        for sign, slopes in zip((-1.0, 1.0), sides, strict=True):
            squares = np.maximum(sign * one.errors, 0.0) ** 2
            more = (squares[out] - quantile(squares[~out], weights[~out], _SIDE)) / away[out]
            slopes.append(max(quantile(more, weights[out], _SIDE), 0.0))
    below, above = (float(np.sqrt(np.mean(slopes))) if slopes else 0.0 for slopes in sides)
    source = "the small and the large 30 % of each size, left out: errors beyond a factor of two against those within, mean of the squares"
    return Term(below=below, above=above, source=source)


_SIDE = (1 + SHARE) / 2
_FEW = 8  # rows on either side by which a part of a size says something


def coverages(measured: Measured, constants: Constants, given: Intervals) -> list[Coverage]:
    """Return how many rows of each kind the interval holds."""
    columns: dict[str, list[tuple[Any, ...]]] = {}
    for one in given.found:
        part = measured.take(one.places)
        c, family = part.configurations, families(part, constants)
        ends = np.array([given.ends[each].low for each in family]), np.array([given.ends[each].high for each in family])
        reach = replace(one.reach, terms=given.terms)
        low, high = (np.broadcast_to(end, one.errors.shape) for end in reach.widened(c, constants.traits, ends))
        plain = (one.errors >= np.log(ends[0])) & (one.errors <= np.log(ends[1]))
        wide = (one.errors >= np.log(low)) & (one.errors <= np.log(high))
        columns.setdefault(one.kind, []).append((plain, wide, low, high))
    joined = {kind: [np.concatenate(column) for column in zip(*parts, strict=True)] for kind, parts in columns.items()}
    return [
        Coverage(
            kind=kind,
            rows=len(plain),
            near=float(plain.mean()),
            wide=float(wide.mean()),
            low=float(np.median(low)),
            high=float(np.median(high)),
        )
        for kind, (plain, wide, low, high) in joined.items()
    ]
