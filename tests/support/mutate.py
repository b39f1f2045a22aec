"""Mutations of real lines: what splices, cuts, other processes and bad disks do to a log."""

import random
import re
from collections.abc import Callable

_DIGITS = b"0123456789.,eE+-"
_JOINTS = _DIGITS + b":/"  # with what joins the numbers of a clock, a date or a share
_NUMBER_NEXT = re.compile(rb"[ \t:='\"(\[<|*/.]*[-+.]?\d")
_WORD_BEFORE, _WORD_NEXT = re.compile(rb"[\w/.()-]+$"), re.compile(rb"[\w/.()-]*['\"]?[ \t]*[:=]")
_DIGIT, _AROUND = re.compile(rb"\d"), 8  # bytes on each side of a cut by which a reader may know it
NOISE = (
    b"node12:4711:4733 [3] NCCL INFO Channel 07/0 : 12[3] -> 40[3] [send] via NET/IB/1/GDRDMA\n",
    b"[rank7]: UserWarning: torch.cuda.amp.autocast(args) is deprecated\n",
    b"2026-01-01 10:00:00,000 [WARNING] something that takes 12.5 s and 1,024 words\n",
    b"\xff\xfe broken \x00 bytes \xc3\n",
    b"\r 10%|#         | 10/100 [00:10<01:30]\r",
)
Mutation = Callable[[bytes, random.Random], bytes]


def splice(text: bytes, dice: random.Random) -> bytes:
    """Take out up to 200 bytes anywhere, except where that would state another number in a number's place."""
    begin = dice.randrange(len(text))
    end = min(len(text), begin + dice.randrange(1, 200))
    return text[:begin] + text[end:] if _is_plain_cut(text, begin, end) else text


def interrupt(text: bytes, dice: random.Random) -> bytes:
    """Put another process's words anywhere, except behind a number's first digits, where they would end it."""
    place = dice.randrange(len(text))
    words = dice.choice(NOISE)
    return text[:place] + words + text[place:] if not _cuts_number(text, place) else text


def cut_end(text: bytes, dice: random.Random) -> bytes:
    """End the log anywhere: the program was killed."""
    return text[: dice.randrange(len(text))]


def other_lines(text: bytes, dice: random.Random) -> bytes:
    """Put whole lines of other processes between the lines."""
    lines = text.splitlines(keepends=True)
    for _ in range(dice.randrange(1, 5)):
        # What was cut short stays the end: words behind it would make its last digits a number.
        lines.insert(dice.randrange(len(lines)), dice.choice(NOISE[:4]))
    return b"".join(lines)


def repeat(text: bytes, dice: random.Random) -> bytes:
    """Print some lines twice, as a second rank or a second handler does."""
    lines = text.splitlines(keepends=True)
    place = dice.randrange(len(lines))
    if not lines[place].endswith((b"\n", b"\r")):
        return text  # what was cut short cannot come again as a whole
    return b"".join([*lines[: place + 1], *lines[place:]])


def change_bytes(text: bytes, dice: random.Random) -> bytes:
    """Change up to eight bytes anywhere."""
    content = bytearray(text)
    for _ in range(dice.randrange(1, 9)):
        content[dice.randrange(len(content))] = dice.randrange(256)
    return bytes(content)


def change_number(text: bytes, dice: random.Random) -> bytes:
    """Put an extreme number in the place of one."""
    numbers = list(re.finditer(rb"\d+(?:\.\d+)?", text))
    if not numbers:
        return text
    found = dice.choice(numbers)
    value = dice.choice((b"0", b"-1", b"nan", b"inf", b"1e308", b"1e-308", b"9" * 40, b"", b"1,5", b"0x10", b"1e400"))
    return text[: found.start()] + value + text[found.end() :]


def _cuts_number(text: bytes, place: int, digits: bytes = _DIGITS) -> bool:
    return text[place - 1 : place] in digits and text[place : place + 1] in digits if 0 < place < len(text) else False


def _is_plain_cut(text: bytes, begin: int, end: int) -> bool:
    if any(_cuts_number(text, place, _JOINTS) for place in (begin, end)):
        return False
    # A number that comes to stand behind the words of another is a false statement that nobody could know for one.
    if text[begin - 1 : begin] in b"\r\n":
        return True
    word, rest = _WORD_BEFORE.search(text, max(0, begin - 60), begin), _WORD_NEXT.match(text, end)
    is_known_word = word is not None and rest is not None and word[0] + rest[0] in text
    return not (is_known_word or _is_seamless(text, begin, end) or _NUMBER_NEXT.match(text, end))


def _is_seamless(text: bytes, begin: int, end: int) -> bool:
    """Say whether the text around the joint stands elsewhere in the log too, but for its numbers.

    Such a line is one that the program may have written: the head of one record with the tail of another is then a false
    statement that nobody could know for one.
    """
    joint = _DIGIT.sub(b"0", text[max(0, begin - _AROUND) : begin] + text[end : end + _AROUND])
    return joint in _DIGIT.sub(b"0", text)


HONEST: tuple[Mutation, ...] = (splice, interrupt, cut_end, other_lines, repeat)
"""After these the log states the same rates as before, or fewer."""
WILD: tuple[Mutation, ...] = (change_bytes, change_number)
"""After these the log may state anything; it must only be read without an error."""
