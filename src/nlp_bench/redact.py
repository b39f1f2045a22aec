"""Blacks out what looks like a secret in texts, keeping every line where it was; the secret itself is never shown.

Records of a run (environment.json, command.txt, run.json) and bundles go through it. The shapes of tokens are those that their issuers publish (GitHub `ghp_`, Hugging Face
`hf_`, AWS `AKIA`, GitLab `glpat-`, Slack `xox`, NVIDIA `nvapi-`, JSON web tokens `eyJ`). It is a net, not a proof.
"""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

MARK = b"[redacted]"
SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL|JWT", re.IGNORECASE)
"""What stands in the name of a variable whose value is a secret."""
SECRET_END = re.compile(r"_(?:PASS|PAT|PWD|KEY|AUTH)$", re.IGNORECASE)
"""With what such a name may end."""
_CHUNK_BYTES = 4 << 20
_VALUE = rb"""(?P<value>\\?"(?:[^"\\\n]|\\.)+"|'[^'\n]+'|[^\s"',;|&)\]}]+)"""
_IS = rb"""(?:\\?["']?\s{0,3}[=:]\s{0,3}|\s\.{2,}\s)"""
_HARMLESS = re.compile(
    rb"""\\?["']?(?:\*{3,}|none|null|true|false|yes|no|<\w*>|\$\{?\w+\}?|\[redacted\]?)?\\?["']?""", re.IGNORECASE
)
_NUMBER = re.compile(rb"""["']?[-+.,\d%/eE]*["']?""")
_NAME = rb"(?:api[_-]?key|apikey|passw(?:or)?d|passphrase|secret(?:[_-]?(?:access[_-]?)?key)?|credentials?|(?:access|auth|hf|hub|wandb|github|gitlab|api|refresh|private|ngc|comet|neptune|mlflow)[_-]?token)"


class _Rule(NamedTuple):
    kind: str
    needles: tuple[bytes, ...]
    """One of these stands in every text that the form matches (in lower case where the form does not mind the case)."""
    form: "re.Pattern[bytes]"
    is_harmless: Callable[[bytes], bool]


def _never(_: bytes) -> bool:
    return False


def _is_word(value: bytes) -> bool:
    return bool(_HARMLESS.fullmatch(value))


def _is_word_or_number(value: bytes) -> bool:
    # TOKENS=4096 counts tokens, it is no secret.
    return _is_word(value) or bool(_NUMBER.fullmatch(value))


_UPPER = SECRET.pattern.upper().encode()
RULES = (
    _Rule(
        "private key",
        (b"private key",),
        re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<value>(?:(?!-----).){1,20000})", re.DOTALL | re.IGNORECASE),
        _never,
    ),
    _Rule(
        "token",
        (b"hf_", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"glpat-", b"akia", b"asia", b"xox", b"nvapi-", b"eyj", b"sk-"),
        re.compile(
            rb"(?<![A-Za-z0-9])(?P<value>hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
            rb"|xox[abprs]-[\w-]{10,}|nvapi-[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}|sk-[\w-]{20,})"
        ),
        _never,
    ),
    _Rule("user and password in a URL", (b"://",), re.compile(rb"://(?P<value>[^\s/@:\"'<>]{1,200}:[^\s/@\"'<>]{1,500})@"), _never),
    _Rule(
        "authorization",
        (b"bearer ", b"basic "),
        re.compile(rb"(?:authorization\W{1,6})(?:bearer|basic) (?P<value>[\w+/=.~-]{6,})", re.IGNORECASE),
        _never,
    ),
    _Rule(
        "value of a secret's name",
        (b"token", b"secret", b"passw", b"api_key", b"apikey", b"credential", b"jwt"),
        re.compile(rb"(?<![A-Za-z0-9_])[A-Z0-9_]{0,64}(?:" + _UPPER + rb")[A-Z0-9_]{0,64}" + _IS + _VALUE),
        _is_word_or_number,
    ),
    _Rule(
        "value of a secret's name",
        (b"key", b"passw", b"passphrase", b"secret", b"credential", b"token"),
        re.compile(_NAME + _IS + _VALUE, re.IGNORECASE),
        _is_word,
    ),
    _Rule(
        "value of a secret's name",
        (b"_pass", b"_pat", b"_pwd", b"_key", b"_auth"),
        re.compile(rb"(?<![A-Za-z0-9_])[A-Z0-9][A-Z0-9_]{0,64}_(?:PASS|PAT|PWD|KEY|AUTH)=" + _VALUE),
        _is_word_or_number,
    ),
    _Rule(
        "value of a secret's option",
        (b"--",),
        re.compile(rb"--(?:[\w-]{0,40}[_-])?(?:" + _NAME + rb"|token)(?:=|\s{1,3}|',\s{0,2}')" + _VALUE, re.IGNORECASE),
        _is_word_or_number,
    ),
)  # fmt: skip


class Redaction(NamedTuple):
    """One thing that was blacked out."""

    line: int
    """Line of the file, counted from 1."""
    kind: str
    """What it looked like."""


def redact(source: BinaryIO, target: BinaryIO) -> list[Redaction]:
    """Copy `source` to `target` without secrets and return what was blacked out; no line is added or lost."""
    found, number = [], 1
    for chunk in _chunks(source):
        text, redactions = redact_text(chunk)
        found += [Redaction(number + line - 1, kind) for line, kind in redactions]
        number += chunk.count(b"\n")
        target.write(text)
    return found


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    """Yield about _CHUNK_BYTES each, cut behind a line end where there is one."""
    rest = b""
    while block := source.read(_CHUNK_BYTES):
        text = rest + block
        end = text.rfind(b"\n") + 1
        if not end and len(text) < 8 * _CHUNK_BYTES:
            rest = text
            continue
        end = end or len(text)
        yield text[:end]
        rest = text[end:]
    if rest:
        yield rest


def redact_text(text: bytes) -> tuple[bytes, list[Redaction]]:
    """Return `text` without secrets, and what was blacked out with its line in `text`."""
    found: list[Redaction] = []
    lower = text.lower()
    for rule in RULES:
        if not any(needle in lower for needle in rule.needles):
            continue
        parts, end = [], 0
        for match in rule.form.finditer(text):
            if rule.is_harmless(match["value"]):
                continue
            line = text.count(b"\n", 0, match.start("value")) + 1
            found.append(Redaction(line, rule.kind))
            parts += [text[end : match.start("value")], _black(match["value"])]
            end = match.end("value")
        if parts:
            text = b"".join([*parts, text[end:]])
    return text, sorted(set(found))


def is_secret(name: str, value: str) -> bool:
    """Return whether the variable `name` holds a secret: by its name, or by the shape of its value.

    Words such as true, numbers, other variables (`$NAME`) and absolute paths are none: TOKENIZERS_PARALLELISM=false.
    """
    raw = value.encode("utf-8", "surrogateescape")
    if (SECRET.search(name) or SECRET_END.search(name)) and not (_is_word_or_number(raw) or value.startswith("/")):
        return True
    return bool(redact_text(raw)[1])


def without_secrets(text: str) -> str:
    """Return `text` with what looks like a secret blacked out."""
    return redact_text(text.encode("utf-8", "surrogateescape"))[0].decode("utf-8", "surrogateescape")


def _black(value: bytes) -> bytes:
    quote = value[:2] if value[:2] == b'\\"' else value[:1] if value[:1] in b"\"'" else b""
    return quote + MARK + quote + b"\n" * value.count(b"\n")
