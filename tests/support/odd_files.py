"""Mutations of configuration files and records: what a slip of the hand, a full disk or a stranger makes of them."""

import json
import random
from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, -0.0, 0.5, 1e-300, 1e308, float("nan"), float("inf"), "", " ", "0", "-1",
    "None", "VALID", "nan", "../../../etc/x", "/dev/full", "/", ".", "~", "$(touch x)", "a b", "a\nb", "a\0b", "\ud800", "\udcff", "\u202e",
    "%s%n{0}", "--help", "-", "x" * 300, "\U0001f600", [], [None], [[]], ["a", 1], {}, {"": None}, {"a": {"b": []}},
)  # fmt: skip
"""Values that a field does not expect."""
ODD_WORDS = (
    "", " ", "0", "-1", "1", "-0", "+1", "1_000", "1e3", "1e400", "nan", "inf", "-inf", "0x10", "\u0663", "9" * 30, "9" * 5000, "1:00:00", "25:99", "1,2", ",", "a=b", "=",
    "--", "--help", "--version", "--nope", "--model", "--format", "json", "tiny", "175", "local", "x" * 300, "a b", "a\nb", "\udcff", "\u202e", "$(x)", "%s{0}", "*", "[",
    "HERE", "HERE/job.out", "HERE/nothing", "None", "true",
)  # fmt: skip
"""What a command line may hold by a slip; it cannot hold a NUL."""
ODD_TOML = (
    "true", "0", "-1", "99999999999999999999", "1e400", "nan", "-inf", "0.5", '""', '"x"', '"../../x"', '"a\\nb"', '"a\\u0000b"', "[]", "[1]", '[""]',
    "[[]]", "{}", "{a = 1}", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "", "=", '"', "'''", '"%s{0}$(x)"', '"' + "x" * 300 + '"', "0x10",
    "[" * 3000,
)  # fmt: skip


def bytes_changed(text: bytes, dice: random.Random) -> bytes:
    """Cut, repeat, insert or change some bytes anywhere."""
    begin = dice.randrange(len(text) + 1)
    end = min(len(text), begin + dice.randrange(60))
    kind = dice.randrange(6)
    if kind == 0:
        return text[:begin]
    if kind == 1:
        return text[:begin] + text[end:]
    if kind == 2:
        return text[:begin] + text[begin:end] * dice.randrange(2, 50) + text[end:]
    if kind == 3:
        return (
            text[:begin]
            + dice.choice((b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"[" * 5000, b'{"a":' * 3000, b"9" * 5000, b'"'))
            + text[begin:]
        )
    if kind == 4:
        return text[:begin] + bytes(dice.randrange(256) for _ in range(end - begin)) + text[end:]
    return dice.choice(
        (b"", b"null", b"[]", b"{}", b"\xff\xfe", b"\0" * 100, b"[" * 100_000, b'{"schema": 1}', text[::-1])
    )


def json_changed(text: bytes, dice: random.Random) -> bytes:
    """Take away, exchange, rename or add fields of a JSON record."""
    record = json.loads(text)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        _change(record, dice)
    if dice.random() < 0.02:
        record = dice.choice(ODD)
    return json.dumps(record).encode()


def _change(record: Any, dice: random.Random) -> None:
    place = record
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = dice.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and dice.random() < 0.75:
            place = place[key]
            continue
        break
    kind = dice.randrange(8)
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(place, dict):
        place[dice.choice(("", "schema", "x", "__class__", "a.b", "\ud800", str(key).upper()))] = place.pop(key)
    elif kind == 2:
        other = dice.choice(keys)
        place[key], place[other] = place[other], place[key]
    elif kind == 3 and isinstance(place[key], str):
        words = place[key]
        cut = dice.randrange(len(words) + 1)
        place[key] = words[:cut] + dice.choice(("", "\n", "/", "9", " ", "'", '"', "$x", "\0", "\udcff")) + words[cut:]
    elif kind == 4 and isinstance(place[key], int | float) and abs(place[key]) < 10**18:  # JSON and float end somewhere
        place[key] = dice.choice((-place[key], place[key] * 10**6, str(place[key]), place[key] + 0.5, [place[key]], 0))
    else:
        place[key] = deepcopy(dice.choice(ODD))  # the next change may go into it


def words_changed(words: tuple[str, ...], dice: random.Random) -> tuple[str, ...]:
    """Take away, exchange, repeat, move or cut words behind the first, which stays; none leads out of the folder."""
    changed = list(words[1:])
    for _ in range(dice.choice((1, 1, 2, 3))):
        at, kind = dice.randrange(len(changed) + 1), dice.randrange(6)
        if kind == 0 or not changed:
            changed.insert(at, dice.choice(ODD_WORDS))
            continue
        at = min(at, len(changed) - 1)
        if kind == 1:
            del changed[at]
        elif kind == 2:
            changed.insert(at, changed[at])
        elif kind == 3:
            changed[at] = changed[at][: dice.randrange(len(changed[at]) + 1)]
        else:
            changed[at] = dice.choice(ODD_WORDS)
    return words[0], *changed


def toml_changed(text: bytes, dice: random.Random) -> bytes:
    """Take away, exchange, repeat or misspell lines of a TOML file."""
    lines = text.decode().splitlines()
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(lines)) if lines else 0
        line = lines[at] if lines else ""
        kind = dice.randrange(7)
        if kind == 0 and lines:
            del lines[at]
        elif kind == 1:
            lines.insert(at, line)
        elif kind == 2 and "=" in line:
            lines[at] = line.partition("=")[2] + " = 1"
        elif kind == 3 and line.startswith("["):
            lines[at] = dice.choice(("[x]", "[[x]]", "[", line.replace("]", ".y]"), line.upper()))
        elif kind == 4 and lines:
            other = dice.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif "=" in line:
            lines[at] = line.partition("=")[0] + "= " + dice.choice(ODD_TOML)
    return ("\n".join(lines) + "\n").encode()


def changed(name: str, text: bytes, dice: random.Random) -> bytes:
    """Change a file by its name's ending."""
    structured: dict[str, Callable[[bytes, random.Random], bytes]] = {"json": json_changed, "toml": toml_changed}
    change = structured.get(name.rpartition(".")[2])
    return bytes_changed(text, dice) if change is None or dice.random() < 0.3 else change(text, dice)
