"""What a report has seen and not read as a log: named in one line, not in a row each."""

from dataclasses import dataclass
from typing import Any

_MAX_NAMES = 5


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """Files below one PATH that are no logs of a training."""

    folder: str
    """The PATH."""
    no_training_line: tuple[str, ...]
    """Texts without any training line; paths below the folder."""
    binary: tuple[str, ...]
    """Files that hold no text, by their first bytes."""

    def sentence(self) -> str:
        """Return what a person should know, in one line."""
        said = []
        if self.no_training_line:
            said.append(f"{len(self.no_training_line)} file(s) hold no training line: {_some(self.no_training_line)}")
        if self.binary:
            said.append(f"{len(self.binary)} binary file(s) are passed over: {_some(self.binary)}")
        return f"{self.folder}: " + "; ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Return one object of `passed_over` in nlp-bench/report/1."""
        return {"folder": self.folder, "no_training_line": list(self.no_training_line), "binary": list(self.binary)}


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
