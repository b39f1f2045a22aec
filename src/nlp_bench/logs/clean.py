"""Removes what terminals, launchers and loggers add to a line of a training: colours, wrappers, time stamps, line breaks."""

import re
from typing import TYPE_CHECKING

from nlp_bench.files import parse_json

if TYPE_CHECKING:
    from nlp_bench.logs.scan import Line
    from nlp_bench.logs.source import Block

# How an escape may be written: itself, as a caret, as an escape of JSON, C or Python, as its Unicode picture.
_ESC = rb"(?:\x1b|\^\[|\\u001[bB]|\\x1[bB]|\\033|\\e(?=\[)|\xe2\x90\x9b)"
_ANSI = re.compile(
    _ESC + rb"(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[()][0-9A-B]|[@-Z\\-_=>78])"
)
_HINTS = (b"\x1b", b"^[", b"\\u001", b"\\x1", b"\\033", b"\\e[", b"\xe2\x90\x9b")
# Colours without their ESC: `[36mstep`, `[39m`, `[0;1m`. Only numbers that are colours, and no text of a log such as
# `[10ms]`, `[5m]`, `[1m30s]`, `[30min]` or `[mpi]`.
_CODE = rb"(?:0?[1-9]|2[1-9]|[34]\d|9[0-7]|10[0-7])"
_LOST = re.compile(
    rb"\[0{1,2}(?:;\d{1,3}){0,8}m|\[m(?![A-Za-z\]])"
    rb"|\[" + _CODE + rb"(?:;\d{1,3}){0,8}m(?![\],/]|s(?![A-Za-z])|in(?:s|utes?)?(?![a-z])| ?\d{1,2}s(?![a-z]))"
)
_STAMP = re.compile(
    rb"\[?\d{4}[-/]\d\d[-/]\d\d[T ,_-]?\s?\d\d:\d\d:\d\d(?:[.,:]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
    rb"|\[?\d\d[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\]?"
    rb"|\[?\d{8}[ T_-]\d\d:?\d\d:?\d\d(?:[.,]\d+)?\]?"
    rb"|\d\d/\d\d/\d{4} \d\d:\d\d:\d\d|\d\d/\d\d \d\d:\d\d:\d\d|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
)

# In UTF-8, and in ISO 8859-1, where it is not the end of another character.
_NO_BREAK = rb"(?:\xc2\xa0|(?<![\x80-\xff])\xa0+)"
# None between thousands: `separators` reads them.
_BLANK = re.compile(_NO_BREAK + rb"(?!\d{3}(?!\d))|(?<!\d)" + _NO_BREAK)


def plain_blanks(block: "Block") -> None:
    """Put blanks for the no-break spaces of a web page or an office program, in place: each line keeps its length."""
    data, at = block.data, block.begin
    while (at := data.find(b"\xa0", at, block.lookahead_end)) >= 0:
        if 0x80 <= data[at - 1] != 0xC2:
            at += 1
            continue
        first, last = (block.begin, block.end) if at < block.end else (block.end, block.lookahead_end)
        begin, end = data.rfind(b"\n", first, at) + 1 or first, data.find(b"\n", at, last)
        is_cut, end = end < 0, last if end < 0 else end
        if is_cut and last > block.end:
            return  # the rest of this line has not been read
        end -= data[end - 1] == ord("\r")
        text = _BLANK.sub(lambda found: b" " * found[0].count(b"\xa0"), data[begin:end])
        # A number at the end of a cut line may be cut, too: no blank ends it.
        data[begin:end] = text.rjust(end - begin) if is_cut else text.ljust(end - begin)
        at = end


def pieces(raw: bytes) -> list[bytes]:
    """Return the texts of one line without colours, split at carriage returns, after which a terminal overwrites the line."""
    text = _unpacked(raw) if raw.lstrip(b" ")[:1] in WRAPPERS or raw.endswith((b'"', b'"\r')) else raw
    text = text.replace(b"^M", b"\r") if b"^M" in text else text
    # One byte each that every hint has: most lines have none of them.
    if (b"\x1b" in text or b"\\" in text or b"^" in text or b"\x90" in text) and any(h in text for h in _HINTS):
        text = _ANSI.sub(b"", text)
    if b"m" in text and b"[" in text:
        text = _LOST.sub(b"", text)
    return [piece for piece in text.split(b"\r") if piece] if b"\r" in text else [text]


WRAPPERS = frozenset((b"{", b'"', b">"))  # first letters of a line in which another one may be wrapped
_CELLS = re.compile(rb'(?:([^",]{1,40}),|\s*)"(.*?)(?:\\n)?",?\s*', re.DOTALL)  # the first one may stand without quotes
_CARRIED = re.compile(rb'"(?:log|message|MESSAGE|msg|textPayload|line|_raw)": ?("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)
"""The line of a program in an object of Docker's json-file driver, Fluent Bit, Elasticsearch, journald, Loki or a cloud."""
# Not `> padded vocab`, which Megatron-LM prints itself.
_QUOTED = re.compile(rb" *(?:> ?)*> ?(?=[ \[\d-])(?! [A-Za-z])")


def _unpacked(raw: bytes) -> bytes:
    """Return the text in a JSON object of a log's collector, in cells of a CSV file or a notebook, or in a quoted mail; else the line."""
    if cells := _CELLS.fullmatch(raw):
        return b" ".join(filter(None, (cells[1], cells[2].replace(b'","', b" "))))
    if quoted := _QUOTED.match(raw):
        return raw[quoted.end() :]
    carried = max(_CARRIED.finditer(raw), key=lambda found: len(found[1]), default=None) if raw[:1] == b"{" else None
    # A record of a training that is itself an object may have a message, too.
    if not carried or b'loss"' in raw[: carried.start()] or b'loss"' in raw[carried.end() :]:
        return raw
    try:
        words = parse_json(carried[1])
    except ValueError:
        return raw
    return str(words).rstrip("\r\n").encode("utf-8", "replace")


def label_of(prefix: bytes) -> bytes:
    """Return the label of the process that wrote a record: the prefix of the line without time stamps and extra blanks."""
    return b" ".join(_STAMP.sub(b"", prefix).split()) if prefix else b""


def first_piece(raw: bytes) -> bytes:
    """Return the first text of a line, stripped of colours and blanks."""
    return next(iter(pieces(raw)), b"").strip()


def next_lines(line: "Line", count: int) -> list[bytes]:
    """Return the next lines, of a mail that quotes the line without its marks."""
    following = line.following(count)
    return [raw.lstrip(b"> ") for raw in following] if line.text.lstrip(b" ").startswith(b">") else following


_MAX_WRAPPED = 4


def unwrapped(line: "Line", text: bytes, head: bytes, end: re.Pattern[bytes]) -> bytes:
    """Return `text`, joined with as many of the next lines as complete its record, which goes from `head` as far as `end`.

    As it is where it has none, or where none complete it. A line with `head` in it is the first of the next record.
    """
    begin = text.find(head)
    if begin < 0 or end.search(text, begin) or not line.is_ended:
        return text
    parts = [text]
    for raw in next_lines(line, _MAX_WRAPPED):
        following = b"".join(pieces(raw))
        if head in following:
            break
        parts.append(following)
        whole = b"".join(part.rstrip(b"\r") for part in parts)  # wrapped anywhere, even inside a key
        if end.search(whole, begin):
            return whole
    return text
