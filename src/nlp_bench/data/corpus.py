"""Text of an invented language with enough structure to learn from; the same for the same seed on every machine."""

import random
from collections.abc import Iterator
from itertools import accumulate

ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "kr", "st", "tr")
VOWELS = ("a", "e", "i", "o", "u", "ai", "or", "en")
SENTENCES = (
    ("article", "noun", "verb", "article", "noun"),
    ("article", "adjective", "noun", "verb", "adverb"),
    ("noun", "verb", "preposition", "article", "adjective", "noun"),
    ("article", "noun", "preposition", "article", "noun", "verb", "noun", "adverb"),
)
SHARES = {"article": 4, "preposition": 24, "adverb": 200, "adjective": 500, "verb": 900, "noun": 2400}
NUM_TOPICS = 16


def documents(seed: int, count: int) -> Iterator[str]:
    """Yield `count` documents of about 600 characters each, drawn from one random grammar.

    Words of a class follow Zipf's law; the topic of a document decides which nouns and verbs are frequent in it.
    """
    draw = random.Random(seed)  # noqa: S311  # reproducible text, no secret
    classes = _lexicon(draw)
    weights = {name: list(accumulate(1 / rank for rank in range(1, len(words) + 1))) for name, words in classes.items()}
    for _ in range(count):
        topic = draw.randrange(NUM_TOPICS)
        words = {name: _shifted(entries, topic) for name, entries in classes.items()}
        sentences = (draw.choice(SENTENCES) for _ in range(draw.randint(12, 24)))
        lines = (" ".join(draw.choices(words[name], cum_weights=weights[name])[0] for name in one) for one in sentences)
        yield ". ".join(line.capitalize() for line in lines) + ".\n"


def _lexicon(draw: random.Random) -> dict[str, list[str]]:
    known: dict[str, None] = {}
    while len(known) < sum(SHARES.values()):
        syllables = 1 + min(len(known) // 60, 1) + draw.randrange(2)  # the first, most frequent words are short
        known["".join(draw.choice(ONSETS) + draw.choice(VOWELS) for _ in range(syllables))] = None
    words = iter(known)
    return {name: [next(words) for _ in range(share)] for name, share in SHARES.items()}


def _shifted(words: list[str], topic: int) -> list[str]:
    if len(words) < 900:
        return words
    start = topic * len(words) // NUM_TOPICS
    return words[start:] + words[:start]
