"""Which configuration of A belongs to which of B."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nlp_bench.measure.observation import MACHINE, is_known
from nlp_bench.measure.repeats import Pool


@dataclass(frozen=True, kw_only=True)
class Matching:
    """Pairs, and what has none."""

    pairs: tuple[tuple[Pool, Pool], ...]
    """A's and B's pool of one configuration each."""
    only_a: tuple[Pool, ...]
    """Configurations that B does not have."""
    only_b: tuple[Pool, ...]
    """Configurations that A does not have."""


def match(a: Sequence[Pool], b: Sequence[Pool]) -> Matching:
    """Pair the only configurations of both; of several, those that are equal, first on the same machine, then on any.

    A run that ended before its log said much states less than its partner: without a number it goes with the only one that it
    nowhere contradicts.
    """
    if len(a) == 1 and len(b) == 1:
        return Matching(pairs=((a[0], b[0]),), only_a=(), only_b=())
    left_a, left_b, pairs = list(a), list(b), []
    for without in ((), MACHINE):
        keys_a, keys_b = _unique(left_a, without), _unique(left_b, without)
        found = [(one, keys_b[key]) for key, one in keys_a.items() if key in keys_b]
        left_a = [pool for pool in left_a if all(pool is not one for one, _ in found)]
        left_b = [pool for pool in left_b if all(pool is not two for _, two in found)]
        pairs += found
    for two in [pool for pool in left_b if not pool.runs]:
        alike = [one for one in left_a if _agree(one, two)]
        if len(alike) == 1 and sum(_agree(alike[0], pool) for pool in left_b) == 1:
            pairs.append((alike[0], two))
            left_a = [pool for pool in left_a if pool is not alike[0]]
            left_b = [pool for pool in left_b if pool is not two]
    return Matching(pairs=tuple(pairs), only_a=tuple(left_a), only_b=tuple(left_b))


def _agree(one: Pool, two: Pool) -> bool:
    """Say whether both know their configuration, and the same of everything that both state."""
    stated = dict(two.identity)
    return (
        is_known(one.settings)
        and is_known(two.settings)
        and all(stated.get(name, value) == value for name, value in one.identity if name not in MACHINE)
    )


def _unique(pools: Iterable[Pool], without: Sequence[str]) -> dict[object, Pool]:
    found: dict[object, list[Pool]] = {}
    for pool in pools:
        key = tuple((name, value) for name, value in pool.identity if name not in without)
        found.setdefault(key, []).append(pool)
    return {key: same[0] for key, same in found.items() if len(same) == 1}
