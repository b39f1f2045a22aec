"""SHA-256 of the lines of files: eight hexadecimal digits per line tell which line of a changed log is not the same.

`lines/PATH` holds a heading and then a digest per line: the first 8 digits of what `sha256sum` says of the line with its line
end. Above MAX_DIGESTS lines one digest stands for several lines.
"""

import hashlib
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import NamedTuple

MAX_DIGESTS = 1_000_000
LENGTH = 8
_HEADING = re.compile(r"nlp-bench/lines/1 sha256/8 lines_per_digest=(\d{1,9})")
_MAX_ALIGNED = 2_000
"""Differing stretches above this many digests are not matched line by line: it takes the square of their length."""


class Change(NamedTuple):
    """A stretch of lines that is not as it was."""

    what: str
    """`changed`, `inserted` or `removed`."""
    first: int
    """First line, counted from 1, of the file as it is; for `removed` the line in front of which they stood."""
    num_lines: int
    """Lines; for `removed` the lines that are gone."""


def line_digests(path: Path) -> str:
    """Return the text of `lines/PATH` for the file at `path`."""
    with path.open("rb") as stream:
        num_lines = sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b"")) + 1
    step = -(-num_lines // MAX_DIGESTS)
    return f"nlp-bench/lines/1 sha256/8 lines_per_digest={step}\n" + "".join(f"{d}\n" for d in _digests(path, step))


def _digests(path: Path, step: int) -> Iterator[str]:
    with path.open("rb") as stream:
        while lines := b"".join(islice(stream, step)):
            yield hashlib.sha256(lines).hexdigest()[:LENGTH]


def changes(path: Path, recorded: str) -> list[Change] | None:
    """Compare the lines of `path` with the text of its `lines/PATH`; None where that text is none."""
    heading, *before = recorded.split("\n")[: MAX_DIGESTS + 3]
    found = _HEADING.fullmatch(heading)
    if not found or not int(found[1]):
        return None
    step, before = int(found[1]), [digest for digest in before if digest]
    after = list(_digests(path, step))
    head = _same(before, after)
    tail = _same(before[head:][::-1], after[head:][::-1])
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    return [Change(what, first * step + 1, count * step) for what, first, count in _stretches(old, new, head)]


def _same(one: list[str], other: list[str]) -> int:
    return next(
        (i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def _stretches(old: list[str], new: list[str], head: int) -> Iterator[tuple[str, int, int]]:
    if len(old) == len(new):
        # As many lines as before: each was changed in its place.
        yield from (("changed", head + i, 1) for i, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1])
    elif max(len(old), len(new)) > _MAX_ALIGNED:
        yield "changed", head, len(new)
    else:
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            both = min(i2 - i1, j2 - j1)
            if tag != "equal" and both:
                yield "changed", head + j1, both
            if tag != "equal" and j2 - j1 > both:
                yield "inserted", head + j1 + both, j2 - j1 - both
            if tag != "equal" and i2 - i1 > both:
                yield "removed", head + j1 + both, i2 - i1 - both
