"""Reads a shard of JSON lines: decompressed, in blocks of whole lines, the text in each line, and its sentences.

The end of a block depends only on its start, so that work can be resumed after any block. Errors name file and line.
"""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from nlp_bench.errors import UsageError
from nlp_bench.files import parse_json
from nlp_bench.immutable import immutable

BLOCK_BYTES = 2**20
MAX_LINE_BYTES = 2**29
_SKIP_BYTES = 2**22
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_READ = {
    b"PK\x03\x04": "a zip archive; unpack it",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"\x04\x22\x4d\x18": "lz4; unpack it",
    b"PAR1": "Parquet; write it as JSON lines (pandas: read_parquet, to_json(orient='records', lines=True))",
    b"ARROW1": "Arrow; write it as JSON lines",
}
"""First bytes to the format and remedy."""
_ZSTD_WINDOW_LOG = 31  # the largest window, as `zstd -d --long=31` allows; memory is used only for a file with one


@immutable
class Block:
    """Whole lines of a shard."""

    data: bytes  # the lines with their line feeds; a file's last line may have none
    end: int  # byte offset after the block in the decompressed shard
    number: int  # line number, from 1, of its first line
    position: int  # bytes of the file on disk that are read, for the progress

    @property
    def next_line(self) -> int:
        """Number of the line after the block."""
        return self.number + self.data.count(b"\n")


def blocks(path: Path, begin: int = 0, number: int = 1) -> Iterator[Block]:
    """Yield the blocks from byte offset `begin` of the decompressed file on, where line `number` starts.

    A block has at most BLOCK_BYTES, or one longer line. Raises UsageError for a stream that is cut, corrupt or shorter than
    `begin`, and for a line longer than MAX_LINE_BYTES.
    """
    from backports import zstd  # noqa: PLC0415  # only where text is read

    try:
        with path.open("rb") as raw:
            stream = _unpacked(path, raw)
            _skip(stream, begin, is_plain=stream is raw)
            buffer = bytearray()
            while size := _fill_block(buffer, stream, f"input: {path}, line {number}"):
                if not begin and buffer[257:262] == b"ustar":
                    raise UsageError(f"input: {path} is a tar archive; unpack it")
                begin += size
                block = Block(data=bytes(memoryview(buffer)[:size]), end=begin, number=number, position=raw.tell())
                del buffer[:size]
                number = block.next_line
                yield block
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"input: {path} cannot be read to its end: {why}; copy or download it again") from error


def _unpacked(path: Path, raw: BinaryIO) -> BinaryIO:
    """Return the stream of a file, plain, gzip, xz, zstd or bzip2, detected by its first bytes, not its name."""
    head = raw.read(8)
    raw.seek(0)
    for magic, what in _NOT_READ.items():
        if head.startswith(magic):
            raise UsageError(f"input: {path} is {what}")
    if head.startswith(b"\x1f\x8b"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    if head.startswith(b"\xfd7zXZ\x00"):
        return cast("BinaryIO", lzma.LZMAFile(raw))
    if head.startswith(b"BZh"):
        return cast("BinaryIO", bz2.BZ2File(raw))
    # pzstd, which compresses in parallel, writes a skippable frame first.
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):
        from backports import zstd  # noqa: PLC0415  # only where text is read

        option = zstd.DecompressionParameter.window_log_max
        return cast("BinaryIO", zstd.ZstdFile(raw, options={option: _ZSTD_WINDOW_LOG}))
    return raw


def _skip(stream: BinaryIO, begin: int, *, is_plain: bool) -> None:
    if is_plain:
        stream.seek(begin)
        return
    while begin:
        data = stream.read(min(begin, _SKIP_BYTES))
        if not data:
            raise EOFError("it is shorter than it was")
        begin -= len(data)


def _fill_block(buffer: bytearray, stream: BinaryIO, place: str) -> int:
    """Fill the buffer until it holds a block; return the block's length in bytes, 0 at the end of the stream."""
    wanted = BLOCK_BYTES
    while True:
        while len(buffer) < wanted:
            data = stream.read(wanted - len(buffer))
            if not data:
                return len(buffer)
            buffer += data
        if size := buffer.rfind(b"\n", 0, wanted) + 1:
            return size
        if wanted >= MAX_LINE_BYTES:
            raise UsageError(f"{place}: longer than {MAX_LINE_BYTES} bytes; is this JSON lines, one object per line?")
        wanted *= 2


def numbered_lines(data: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each line of a block from line `number` on, without empty ones and the file's byte order mark."""
    data = data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data
    yield from ((place, line) for place, line in enumerate(data.split(b"\n"), number) if line.strip())


def texts_of(line: bytes, key: str, place: str) -> str | list[str]:
    """Return the value of `key`, a text or a list of texts.

    `place` names file and line. Raises UsageError for a line that is not UTF-8, not JSON, or has no text under the key.
    """
    array = "; `jq -c '.[]' FILE` makes lines of an array" if line.lstrip().startswith(b"[") else ""
    try:
        record = parse_json(line.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: not UTF-8: {error}; convert the file with iconv") from error
    except ValueError as error:
        raise UsageError(f"{place}: not JSON: {error}{array}") from error
    if not isinstance(record, dict) or key not in record:
        keys = f"its keys are {', '.join(list(record)[:20])}" if isinstance(record, dict) else "it is no object"
        raise UsageError(f"{place}: no {key!r}: {keys}{array or '; name the right one with --json-key'}")
    found = record[key]
    texts = found if isinstance(found, list) else [found]
    if not all(isinstance(one, str) for one in texts):
        raise UsageError(f"{place}: {key!r} is {'null' if found is None else type(found).__name__}, not text")
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise UsageError(f"{place}: {key!r} has half of a surrogate pair, {half}, which no tokenizer takes") from error
    return cast("str | list[str]", found)


_ABBREVIATIONS = """
mr mrs ms dr prof st sr jr gen col lt sgt rev hon gov sen rep vs etc cf al fig figs eq eqs no nos vol pp ed eds
approx dept est inc ltd co corp e.g i.e u.s u.k a.m p.m jan feb mar apr jun jul aug sep sept oct nov dec
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())  # in lower case
_CLOSING = "[\"')\\]}\u2019\u201d\u00bb\u300d\u300f\uff09]*"
_END = re.compile(
    # The lookbehind keeps a long row of dots from being tried from each of them.
    rf"\n\s*\n|[\u3002\uff01\uff1f]{_CLOSING}|(?<![.!?\u2026])[.!?\u2026]+{_CLOSING}(?=\s)",
)
_LAST_WORD = re.compile(r"[^\s(\[\"'\u201c\u2018]*$")
_WORD_CHARACTERS = 40


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, stripped of white space, by a short rule; empty ones are left out.

    A sentence ends
    1. at an empty line;
    2. after the full stops of Chinese and Japanese, and closing quotes or brackets that follow them;
    3. after . ! ? or the ellipsis sign, and closing quotes or brackets, if white space follows and then no lower-case letter;
       but not after the full stop of a single capital letter (initials) or of ABBREVIATIONS.
    The rule is our own. Punkt (Kiss and Strunk, "Unsupervised Multilingual Sentence Boundary Detection", Computational
    Linguistics 32(4), 2006), which Megatron-LM takes from NLTK, learns abbreviations from text and has to be downloaded.
    """
    found = []
    begin = 0
    for match in _END.finditer(text):
        if _ends(text, match):
            found.append(text[begin : match.end()].strip())
            begin = match.end()
    found.append(text[begin:].strip())
    return [sentence for sentence in found if sentence]


def _ends(text: str, match: "re.Match[str]") -> bool:
    mark = match.group()
    if mark[0] not in ".!?\u2026":
        return True
    following = _next_character(text, match.end())
    if following.islower():
        return False
    if mark != ".":
        return True
    word = _last_word(text, match.start())
    return not (len(word) == 1 and word.isupper()) and word.lower() not in ABBREVIATIONS


def _next_character(text: str, place: int) -> str:
    while place < len(text) and (text[place].isspace() or text[place] in "\"'([{\u201c\u2018\u00ab"):
        place += 1
    return text[place : place + 1]


def _last_word(text: str, end: int) -> str:
    found = _LAST_WORD.search(text[max(end - _WORD_CHARACTERS, 0) : end])
    return found.group() if found else ""
