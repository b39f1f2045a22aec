"""Blacks out what looks like a secret in texts, keeping every line where it was; the secret itself is never shown.

Records of a run (environment.json, command.txt, run.json) and bundles go through it, by the rules of `redact_rules`. It is a net, not a proof.
"""

import bisect
import functools
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, Protocol

from nlp_bench.redact_rules import (
    MAX_WORD,
    OF_A_NAME,
    RULES,
    Rule,
    is_harmless,
    is_password,
    is_secret_value,
    is_secret_variable,
)

MARK = b"[redacted]"
_CHUNK_BYTES = 4 << 20
_REACH = 32 << 10  # bytes at the end of a chunk that are searched again with the next one; no rule matches more
_CONTEXT = 128
_MAX_HELD = 8  # chunks that are held back at most for a secret without an end
_COLOUR = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_CUT = re.compile(rb"""(?:[,;&|)\]}]|\\[nrt])+(?:$|\\{0,3}["']?[\w.-]{1,40}\\{0,3}["']?[=:])""")
_REST = re.compile(rb"[^\s\"'<>`]*")
_LINE = re.compile(rb"[^\n]{0,4000}")
_QUOTE = re.compile(rb"""b?\\{0,3}["']""")


class Redaction(NamedTuple):
    """One thing that was blacked out."""

    line: int  # line of the file, counted from 1
    kind: str  # what it looked like


class _Span(NamedTuple):
    begin: int
    end: int
    kind: str
    since: int  # first byte that the rule examined


class Readable(Protocol):
    """What gives bytes: a file, or one as long as it was when it was opened."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none at the end."""
        ...


def redact(source: Readable, target: BinaryIO) -> list[Redaction]:
    """Copy `source` to `target` without secrets, no line added or lost; return what was blacked out. UTF-16 is searched by the lower byte of each character."""
    found: list[Redaction] = []
    text, line, width, low = b"", 1, 0, 0
    while True:
        block = source.read(_CHUNK_BYTES)
        text += block
        if not width:
            width, low = _width(text[:4096])
        narrow = text[low::width]
        spans = _spans(narrow)
        end = _end(narrow, spans) if block and len(text) < _MAX_HELD * _CHUNK_BYTES else len(narrow)
        spans = [span for span in spans if span.end <= end]
        target.write(_without(text[: end * width], spans, width, low))
        found += _numbered(narrow, spans, line)
        line += narrow.count(b"\n", 0, end)
        text = text[end * width :]
        if not block:
            target.write(text)  # half a character
            return found


def redact_text(text: bytes) -> tuple[bytes, list[Redaction]]:
    """Return `text` without secrets, and what was blacked out with its line in `text`."""
    spans = _spans(text)
    return _without(text, spans, 1, 0), _numbered(text, spans, 1)


def is_secret(name: str, value: str) -> bool:
    """Return whether the variable `name` holds a secret: by its name, or by the shape of its value.

    Words such as true, numbers, other variables (`$NAME`) and absolute paths are none: TOKENIZERS_PARALLELISM=false.
    """
    raw = value.encode("utf-8", "surrogateescape")
    return is_secret_variable(name.encode("utf-8", "surrogateescape"), raw) or bool(_spans(raw))


def without_secrets(text: str) -> str:
    """Return `text` with what looks like a secret blacked out."""
    return redact_text(text.encode("utf-8", "surrogateescape"))[0].decode("utf-8", "surrogateescape")


def _width(head: bytes) -> tuple[int, int]:
    """Return how many bytes a character has, and which of them is the lower one."""
    for low in (0, 1):
        if head.startswith((b"\xff\xfe", b"\xfe\xff")[low]) or head[1 - low :: 2].count(0) > 0.4 * len(head):
            return 2, low
    return 1, 0


def _end(text: bytes, spans: Sequence[_Span]) -> int:
    """Return the end of the text in which nothing that follows can change a secret; after a line end where there is one."""
    end = max(0, len(text) - _REACH)
    end = text.rfind(b"\n", 0, end) + 1 or end
    for span in reversed(spans):
        if span.since < end < span.end:
            end = text.rfind(b"\n", 0, span.since) + 1 or span.since
    return end


def _spans(text: bytes) -> list[_Span]:
    """Return the secrets in `text`, in order and without overlaps; colour codes within are ignored."""
    plain, places, lost = _plain(text)
    lower = plain.lower()
    found = sorted(span for rule in RULES for span in _of_rule(rule, plain, lower))
    spans: list[_Span] = []
    for begin, end, kind, since in found:
        if spans and begin < spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(end, spans[-1].end))
        else:
            spans.append(_Span(begin, end, kind, since))
    if not places:
        return spans
    begins = [[place + lost[bisect.bisect_right(places, place)] for place in (s.begin, s.since)] for s in spans]
    ends = [s.end + lost[bisect.bisect_left(places, s.end)] for s in spans]
    return [_Span(begin, end, s.kind, since) for s, (begin, since), end in zip(spans, begins, ends, strict=True)]


def _plain(text: bytes) -> tuple[bytes, list[int], list[int]]:
    """Return `text` without colours, the places in it where one stood, and how many bytes were removed before each (and after the last)."""
    places: list[int] = []
    lost = [0]
    if b"\x1b[" in text:
        for match in _COLOUR.finditer(text):
            places.append(match.start() - lost[-1])
            lost.append(lost[-1] + match.end() - match.start())
    return _COLOUR.sub(b"", text) if places else text, places, lost


@functools.cache
def _form(rule: Rule) -> "re.Pattern[bytes]":
    return re.compile(re.escape(rule.lead) + rule.form)


def _of_rule(rule: Rule, text: bytes, lower: bytes) -> Iterator[_Span]:
    searched, place = lower if rule.is_lower else text, 0
    if len(text) < _REACH and rule.lead not in searched:  # most texts are short: a form is made once it is needed
        return
    while match := _form(rule).search(searched, place):
        since = max(0, match.start() - _CONTEXT)
        begin, end = _extent(text, match) if rule.is_named else match.span(1 if match.re.groups else 0)
        value = text[begin:end]
        if rule.is_named:
            name, sep = text[match.start() : match.end("name")], text[slice(*match.span("sep"))]
            is_found = is_secret_value(text[since : match.start()], name, sep, value)
            place = end if is_found else match.end("name")
            if is_found and end - begin == MAX_WORD:
                end = place = _REST.match(text, end).end()  # type: ignore[union-attr]  # it matches nothing too
        else:
            is_found = not (is_harmless(value) or (rule.after and not rule.after.search(text, since, match.start())))
            place = match.end()
        if is_found and rule.parts:
            yield from (_Span(*part.span(), rule.name, since) for part in rule.parts.finditer(text, begin, end))
        elif is_found:
            yield _Span(begin, end, rule.name, since)


def _extent(text: bytes, match: "re.Match[bytes]") -> tuple[int, int]:
    """Return the place of a value without its quotes; one without quotes ends where the next name begins.

    Where the quotes stand around name and value (`'A_TOKEN=two words'`, as `set -x` prints it), or a password after its name has a line to itself (as `env`
    prints it), it may have blanks.
    """
    begin, end = match.span("value")
    value = text[begin:end]
    if quote := _QUOTE.match(value):
        inner = value[quote.end() :].rstrip(b"\\\"'")
        return begin + quote.end(), begin + quote.end() + len(inner)
    if text[slice(*match.span("sep"))] == b"=":
        before = text[max(0, match.start() - _CONTEXT) : match.start()].rstrip(OF_A_NAME)
        opened, in_line = before[-1:], before.rpartition(b"\n")[2].rstrip()
        is_opened, is_alone = opened in {b"'", b'"'}, not in_line or in_line.endswith(b"]:")
        if is_opened or (is_alone and is_password(text[max(0, match.start() - 32) : match.end("name")])):
            line = _LINE.match(text, begin)[0].rstrip()  # type: ignore[index]  # it matches nothing too
            length = line.find(opened) if is_opened else len(line)
            if length > 0:
                return begin, begin + length
    cut = _CUT.search(value)
    return begin, begin + cut.start() if cut and cut.start() else end


def _without(text: bytes, spans: Sequence[_Span], width: int, low: int) -> bytes:
    parts, end = [], 0
    mark = MARK if width == 1 else MARK.decode().encode(("utf-16-le", "utf-16-be")[low])
    for span in spans:
        parts += [text[end : span.begin * width], mark]
        end = span.end * width
    return b"".join([*parts, text[end:]])


def _numbered(text: bytes, spans: Sequence[_Span], line: int) -> list[Redaction]:
    found, end = [], 0
    for span in spans:
        line += text.count(b"\n", end, span.begin)
        end = span.begin
        found.append(Redaction(line, span.kind))
    return sorted(set(found))
