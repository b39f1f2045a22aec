"""Names to addresses within a bound: the resolver of the system may take minutes, and no time limit can be given to it."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from nlp_bench.bounded import answers


@dataclass(frozen=True, kw_only=True)
class LookUp:
    """What the resolver said of one name."""

    addresses: tuple[str, ...] = ()
    """Its addresses, the one to be used first; empty where there is none."""
    problem: str = ""
    """Why there is none, in the resolver's words; empty where there is one."""
    is_silent: bool = False
    """Whether the resolver has not answered in time."""


def look_up(names: Iterable[str], within_s: float) -> dict[str, LookUp]:
    """Return what is known of each name after `within_s` seconds for all of them together, in their order."""
    silent = LookUp(problem=f"no answer within {within_s:g} s", is_silent=True)
    asked = {name: partial(_asked, name) for name in names}
    return dict.fromkeys(asked, silent) | answers(asked, within_s)


def _asked(name: str) -> LookUp:
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return LookUp(problem=getattr(error, "strerror", None) or str(error))
    return LookUp(addresses=tuple(dict.fromkeys(str(answer[4][0]) for answer in answers)))
