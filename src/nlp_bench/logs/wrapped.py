"""Records that a terminal or an editor has cut into several lines, anywhere, even inside a number."""

from collections.abc import Callable

from nlp_bench.logs.clean import joined, pieces
from nlp_bench.logs.scan import Line

_MAX_LINES = 4


def unwrapped(line: Line, text: bytes, is_complete: Callable[[bytes], bool], head: bytes) -> bytes:
    """Return `text`, joined with as many of the next lines as make it complete; as it is where none do.

    A line that holds `head` begins the next record.
    """
    if is_complete(text) or not line.is_ended:
        return text
    parts = [text]
    for following in line.following(_MAX_LINES):
        if head in following:
            break
        parts.append(b"".join(pieces(following)))
        whole = joined(parts)
        if is_complete(whole):
            return whole
    return text
