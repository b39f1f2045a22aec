"""One line of JSON lines to the text in it; every fault is named with its file and line."""

from nlp_bench.errors import UsageError
from nlp_bench.files import parse_json


def text_of(line: str | bytes, key: str, place: str, *, sentences: bool = False) -> str | list[str]:
    """Return the text under `key`, or with `sentences` also a list of texts where one stands there.

    `place` names file and line. Raises UsageError for a line that is not UTF-8, not JSON, or has no text under the key.
    """
    try:
        record = parse_json(line.decode() if isinstance(line, bytes) else line)
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: not UTF-8: {error}; convert the file with iconv") from error
    except ValueError as error:
        raise UsageError(f"{place}: not JSON: {error}") from error
    if not isinstance(record, dict) or key not in record:
        keys = f"its keys are {', '.join(list(record)[:20])}" if isinstance(record, dict) else "it is no object"
        raise UsageError(f"{place}: no {key!r}: {keys}; name the right one with --json-key")
    found = record[key]
    if sentences and isinstance(found, list) and all(isinstance(one, str) for one in found):
        return [_whole(one, key, place) for one in found]
    if not isinstance(found, str):
        kind = "null" if found is None else type(found).__name__
        raise UsageError(f"{place}: {key!r} is {kind}, not text")
    return _whole(found, key, place)


def _whole(text: str, key: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise UsageError(f"{place}: {key!r} has half of a surrogate pair, {half}, which no tokenizer takes") from error
    return text
