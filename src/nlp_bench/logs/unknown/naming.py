"""Words in front of a record that name a job, a host or a process, and sentences that say whose record it is."""

import re

from nlp_bench.logs.unknown.meaning import texts_of, words_of
from nlp_bench.logs.unknown.pairs import Spot
from nlp_bench.logs.unknown.words import EVALUATED

_TAG = re.compile(r"[A-Za-z][\w.-]{2,80}(?=[\]|:>]|$)")
_PARTS = re.compile(r"[_.-]+")
_PLACES = re.compile(r"(?:node|host|cluster|job|gpu|run|exp|project|proj|login|slurm|srv)\d*", re.IGNORECASE)
_MANY_PARTS = 4
_OTHERS = re.compile(
    r"(?:forward|inference)[-_ ]only|\bteacher (?:step|batch|iter|forward)|\bembedding (?:corpus|passages|texts|queries)"
    r"|\blm[_-]?eval|\bcorpus (?:step|batch)",
    re.IGNORECASE,
)
_RANK_NAMES = frozenset({"rank", "local_rank", "global_rank", "process", "worker", "proc", "rank_id", "process_index"})


def without_names(head: str) -> str:
    """Return what stands in front of a record without the names of jobs and hosts: `[test_run_eval_cluster]`."""
    return _TAG.sub(lambda found: " " if _is_name(found[0]) else found[0], head)


def _is_name(word: str) -> bool:
    parts = [part for part in _PARTS.split(word) if part]
    return len(parts) >= _MANY_PARTS or (len(parts) > 1 and any(_PLACES.fullmatch(part) for part in parts))


def is_of_others(text: str) -> bool:
    """Say whether a record tells by itself that it is of no training: of a teacher, of passes forward only."""
    return _OTHERS.search(text) is not None


def is_result(spots: list[Spot]) -> bool:
    """Say whether the only loss of a line is one of an evaluation: `step 10: val loss 3.2, 25000 tok/s`."""
    lost = [named for spot in spots if "loss" in (named := set(texts_of(spot.name)))]
    return bool(lost) and all(named & EVALUATED for named in lost)


def rank_of(spots: list[Spot]) -> int:
    """Return which number of the line is the rank of its process, -1 where none is."""
    for spot in spots:
        if spot.name and not spot.unit and spot.name.split()[-1].strip("[(").lower() in _RANK_NAMES:
            return spot.at
    first = spots[0] if spots else None
    # `srun -l` writes `3: ` in front of each line.
    is_label = first is not None and not first.name and not first.unit and first.behind[:1] == ":"
    return 0 if is_label and len(spots) > 1 and any(c.isalpha() for c in spots[1].name) else -1


def is_each(loose: list[str]) -> bool:
    """Say whether a word of its own says that the rates of a line are of one device: `per GPU: tokens/s=5003`."""
    return any(texts_of(text) == ["/", "dev"] for text in loose)


def is_times_devices(spot: Spot, following: Spot | None) -> bool:
    """Say whether a number is multiplied by the devices behind it: `3000 tok/s x 8 GPUs`."""
    is_times = spot.behind.strip() in {"x", "X", "*", "\u00d7"} and following is not None
    return is_times and following is not None and [w.text for w in words_of(following.unit)] in (["devs"], ["dev"])
