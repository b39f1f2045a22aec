"""The small rules that several records share; an error begins with the dotted field."""

import re

from nlp_bench.config.values import TIMELIMIT
from nlp_bench.errors import UsageError
from nlp_bench.redact import without_secrets

NONCE = re.compile(r"[A-Za-z0-9._:+=/@-]{1,128}")


def positive(**fields: float) -> None:
    """Refuse a value below or equal to zero; the keyword's `__` stands for the dot of the field name."""
    for name, value in fields.items():
        if value <= 0:
            raise UsageError(f"{name.replace('__', '.')}: {value} must be greater than 0")


def one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not among `allowed`."""
    if value not in allowed:
        raise UsageError(f"{field}: {value!r} is not one of {', '.join(allowed)}")


def multiple(field: str, what: str, value: int, divisor_name: str, divisor: int) -> None:
    """Refuse a number that cannot be divided evenly; the message shows the arithmetic."""
    if value % divisor:
        raise UsageError(
            f"{field}: {what} = {value} is not a multiple of {divisor_name} = {divisor} (remainder {value % divisor})"
        )


def timelimit(field: str, value: str) -> None:
    """Refuse a time limit that Slurm would misread: only HH:MM:SS and D-HH:MM:SS are clear to all."""
    if not TIMELIMIT.fullmatch(value):
        raise UsageError(f'{field}: {value!r} is not HH:MM:SS or D-HH:MM:SS; in YAML put it in quotes ("00:30:00")')


def file_name(field: str, value: str) -> None:
    """Refuse a name that cannot be a part of a folder's name and of a line of the job script."""
    if (
        not value.isprintable()
        or value != value.strip()
        or "/" in value
        or value.startswith(".")
        or not 0 < len(value.encode("utf-8", "replace")) <= 100
    ):
        raise UsageError(
            f"{field}: {value[:120]!r} is no name: 1 to 100 printable signs without /, not beginning with a dot"
        )


def nonce(field: str, value: str | None) -> None:
    """Refuse a nonce that could not stand in a line of a log and in a command as it is; `none` there means that there is none."""
    if value is not None and (not NONCE.fullmatch(value) or value == "none"):
        raise UsageError(
            f"{field}: {value[:140]!r} is no nonce: 1 to 128 letters, digits and . _ : + = / @ - (and not the word none); "
            "for example the output of: openssl rand -hex 16"
        )


def no_secret(field: str, text: str) -> None:
    """Refuse words with a password or a token in them: they would be copied into every record of the run."""
    if without_secrets(text) != text:
        raise UsageError(
            f"{field}: holds what looks like a secret ({without_secrets(text)[:200]}), which would be copied into every record; "
            "let the program take it from a variable or from its own file"
        )
