"""Which ranks of a job are rehearsed. No torch here."""

from nlp_bench.errors import UsageError

DEFAULT = "fullest"
MOST_DIGITS = 18
"""Of a rank's number: what int() and the arithmetic behind it take."""


def chosen_ranks(words: str, num_ranks: int, num_stages: int) -> list[int]:
    """Return the ranks that `words` names, in order and each once: numbers, 0-7, last, stages, all, fullest; commas between.

    The ranks of a pipeline stage follow each other (megatron-core's order tp-cp-ep-dp-pp) and differ in nothing but their data
    and, where the last shards of the optimizer's state are smaller, a few bytes; so `stages` is the first of each. `fullest`
    are the first ranks of the first stage (the embedding, and activations of the most micro-batches), of the second
    (the first may have fewer layers) and of the last (the output layer and its logits). Raises UsageError for others.
    """
    found: list[int] = []
    for word in words.split(","):
        found += _ranks(word.strip(), num_ranks, num_stages)
    return sorted(set(found))


def _ranks(word: str, num_ranks: int, num_stages: int) -> list[int]:
    stages = [stage * (num_ranks // num_stages) for stage in range(num_stages)]
    named = {
        "last": [num_ranks - 1],
        "stages": stages,
        "all": list(range(num_ranks)),
        DEFAULT: sorted({stages[0], stages[min(1, num_stages - 1)], stages[-1]}),
    }
    if word in named:
        return named[word]
    first, dash, last = word.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise UsageError(f"--ranks: {word!r} is no rank; give numbers (0,8 or 0-7), {', '.join(named)}")
    if max(len(first), len(last)) > MOST_DIGITS:
        raise UsageError(f"--ranks: {word[:40]!r} is none of the job's {num_ranks} ranks, 0 to {num_ranks - 1}")
    low, high = int(first), int(last or first)
    if low > high:
        raise UsageError(f"--ranks: {word} begins behind its end")
    if high >= num_ranks:
        raise UsageError(f"--ranks: {high} is none of the job's {num_ranks} ranks, 0 to {num_ranks - 1}")
    return list(range(low, high + 1))
