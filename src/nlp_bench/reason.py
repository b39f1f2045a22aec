"""Why something was decided: a code for programs, and a sentence for people."""

from collections.abc import Iterable, Mapping
from typing import Any

from nlp_bench.immutable import immutable

SHARED_NODES = "shared-nodes"
"""Code of a reason: other jobs ran on the nodes of the run meanwhile."""


@immutable(kw_only=False)
class Reason:
    """One reason."""

    code: str  # a stable word with hyphens: decisions rest on it alone
    text: str  # one line for people

    def __str__(self) -> str:
        return self.text


def texts(reasons: Iterable[Reason]) -> list[str]:
    """Return the sentences."""
    return [reason.text for reason in reasons]


def recorded(outcome: Mapping[str, Any]) -> tuple[Reason, ...]:
    """Return the reasons of an outcome.json; one of an older version has no codes."""
    said, codes = outcome.get("reasons") or [], outcome.get("codes")
    known = codes if isinstance(codes, list) and len(codes) == len(said) else ["ended"] * len(said)
    return tuple(Reason(str(code), str(text)) for code, text in zip(known, said, strict=True))
