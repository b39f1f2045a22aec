"""The very text of the records that a number begins with, read again from a plain file, for a person to look at."""

from dataclasses import replace
from pathlib import Path

from nlp_bench.logs.source import HEAD_BYTES, is_packed
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.provenance import Place
from nlp_bench.show.escape import one_line

MAX_BYTES = 4096
MAX_LENGTH = 600


def with_quotes(path: str, entry: RunEntry) -> RunEntry:
    """Return `entry` with the text of its first record and of the first one of the window; unchanged if it cannot be read.

    Offsets count unpacked bytes: of a compressed file nothing is quoted.
    """
    found = entry.provenance
    if found is None or path == "-" or not Path(path).is_file():
        return entry
    first, window = (_quoted(path, place) for place in (found.first_record, found.window_first_record))
    return replace(entry, provenance=replace(found, first_record=first, window_first_record=window))


def _quoted(path: str, place: Place | None) -> Place | None:
    if place is None:
        return None
    try:
        with Path(path).open("rb") as stream:
            if is_packed(stream.read(HEAD_BYTES)):
                return place
            stream.seek(place.offset)
            line = stream.readline(MAX_BYTES)
    except OSError:
        return place
    text = " ".join(one_line(line.decode(errors="replace")).split())
    return replace(place, text=text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "...")
