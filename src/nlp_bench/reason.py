"""Why something was decided: a code for programs, and the sentence for people that no program reads."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason."""

    code: str
    """A stable word with hyphens: decisions rest on it alone."""
    text: str
    """One line for people."""

    def __str__(self) -> str:
        return self.text


def texts(reasons: Iterable[Reason]) -> list[str]:
    """Return the sentences."""
    return [reason.text for reason in reasons]
